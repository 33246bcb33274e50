import json
import pickle

import pytest
import torch
from safetensors.torch import save_file

from hypersphere.energy.checkpoint_files import Checkpoint, as_dense


@pytest.fixture
def folder(tmp_path):
    save_file({"a": torch.randn(4, 3)}, tmp_path / "model-00001-of-00002.safetensors")
    save_file({"b": torch.randn(2, 3)}, tmp_path / "model-00002-of-00002.safetensors")
    where = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    (tmp_path / "config.json").write_text(json.dumps({"num_attention_heads": 2}))
    return tmp_path


def test_shards_are_read_one_tensor_at_a_time(folder):
    checkpoint = Checkpoint(folder)
    assert (list(checkpoint.where), len(checkpoint), "b" in checkpoint) == (["a", "b"], 2, True)
    assert checkpoint._tensors is None
    assert {name: tuple(value.shape) for name, value in checkpoint} == {"a": (4, 3), "b": (2, 3)}
    assert checkpoint.config == {"num_attention_heads": 2}


def test_a_missing_shard_is_named(folder):
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(ValueError, match="has no model-00002-of-00002"):
        Checkpoint(folder)


def test_an_index_cannot_lead_outside(folder):
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "../../etc/passwd"}}))
    with pytest.raises(ValueError, match="has no passwd"):
        Checkpoint(folder)


def test_two_checkpoints_in_one_folder(tmp_path):
    for name in ("one", "two"):
        save_file({"a": torch.randn(4, 3)}, tmp_path / f"{name}.safetensors")
    with pytest.raises(ValueError, match=r"a is in one.safetensors and in two.safetensors"):
        Checkpoint(tmp_path)


def test_an_empty_folder_and_a_circle(tmp_path):
    with pytest.raises(ValueError, match=r"has no \.safetensors"):
        Checkpoint(tmp_path)
    circle: dict = {}
    circle["again"] = circle
    torch.save(circle, tmp_path / "circle.pt")
    with pytest.raises(ValueError, match=r"is damaged|in a cycle"):
        Checkpoint(tmp_path / "circle.pt")


def test_code_is_not_run(tmp_path):
    class Bad:
        def __reduce__(self):
            return (open, (str(tmp_path / "written"), "w"))

    torch.save({"a": Bad()}, tmp_path / "bad.pt")
    (tmp_path / "raw.bin").write_bytes(pickle.dumps({"a": Bad()}, protocol=2))
    for name in ("bad.pt", "raw.bin"):
        with pytest.raises(ValueError, match="not read"):
            Checkpoint(tmp_path / name)
    assert not (tmp_path / "written").exists()


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (torch.ones(1).expand(10**6, 10**6), "repeats 4 bytes"),
        (torch.eye(3).to_sparse(), "layout"),
        (torch.empty(3, 3, device="meta"), "meta device"),
        (torch.ones(3, 3, dtype=torch.int8), "int8"),
        ("text", "not a tensor"),
        (torch.ones(3), ""),
    ],
)
def test_tensors_without_neurons_have_a_reason(value, reason):
    found, why = as_dense(value)
    assert found is None
    assert reason in why


def test_eight_bit_floats_are_read():
    found, _ = as_dense(torch.ones(3, 3).to(torch.float8_e4m3fn))
    assert found is not None
    assert found.dtype == torch.float32
