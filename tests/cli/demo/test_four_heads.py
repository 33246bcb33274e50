import json

import pytest
import torch
from safetensors.torch import load_file

from hypersphere.cli.demo import four_heads


@pytest.fixture
def one_head(monkeypatch):
    monkeypatch.setattr(four_heads, "HEADS", {"ArcFace": four_heads.HEADS["ArcFace"]})


def test_two_epochs_write_everything(tmp_path, one_head):
    seen = []
    (result,) = four_heads.train_heads(tmp_path, epochs=2, progress=lambda name, epoch: seen.append((name, epoch)))
    assert seen == [("ArcFace", 1), ("ArcFace", 2)]
    assert json.loads((tmp_path / "metrics.json").read_text())["ArcFace"].keys() == four_heads.COLUMNS.keys()
    for picture in ("features.png", "angles.png", "training.png"):
        assert (tmp_path / picture).stat().st_size > 5_000
    state = load_file(result.folder / "model.safetensors")
    assert torch.equal(state["classifier.weight"], result.head.weight)
    assert 10 < result.row["accuracy"] <= 100
    assert result.history["epoch"] == [2.0]
    assert len(result.history["energy"]) == 1


def test_the_seed_decides(tmp_path, one_head):
    first, second = (four_heads.train_heads(tmp_path, epochs=1, seed=3)[0] for _ in range(2))
    assert torch.equal(first.features, second.features)


@pytest.mark.slow
def test_margins_tighten_classes_at_no_loss_of_accuracy(tmp_path):
    softmax, *margins = four_heads.train_heads(tmp_path)
    for result in margins:
        assert result.row["intra"] < softmax.row["intra"]
        assert result.row["inter"] > softmax.row["inter"]
        assert result.row["accuracy"] > softmax.row["accuracy"] - 1  # one of the 355 test digits is 0.28 %


def test_refuses(tmp_path):
    with pytest.raises(ValueError, match="epochs must be an integer ≥ 1"):
        four_heads.train_heads(tmp_path, epochs=0)
