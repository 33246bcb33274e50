import json
import math
import os
import pathlib
import signal
import stat
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from hypersphere.files import (
    load_tensors,
    load_tree,
    read_json,
    remove_leftovers,
    save_tensors,
    save_tree,
    write_atomically,
    write_json,
    write_text,
)

LEAVES = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(max_size=5)
TREES = st.recursive(
    LEAVES,
    lambda t: st.lists(t, max_size=3) | st.dictionaries(st.text(max_size=4) | st.integers(0, 9), t, max_size=3),
    max_leaves=8,
)


@given(TREES)
def test_any_tree_comes_back(tree: Any) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        save_tree(tree, f"{folder}/x")
        assert load_tree(f"{folder}/x") == tree


def test_tensors_come_back_bit_for_bit(tmp_path: pathlib.Path) -> None:
    shared = torch.randn(3, 4)
    tree = {
        "a": [shared, shared.T],
        "b": (torch.tensor([float("nan"), -0.0]), 1),
        7: torch.randn(2).to(torch.bfloat16),
        "e": torch.empty(0),
    }
    save_tree(tree, tmp_path / "x")
    again = load_tree(tmp_path / "x")
    assert torch.equal(again["a"][0], shared)
    assert torch.equal(again["a"][1], shared.T)
    assert isinstance(again["b"], tuple)
    assert again["b"][0].view(torch.int32).tolist() == tree["b"][0].view(torch.int32).tolist()  # type: ignore[index]
    assert torch.equal(again[7], tree[7])  # type: ignore[arg-type]
    assert again["e"].shape == (0,)
    save_tree(tree, tmp_path / "y")
    assert (tmp_path / "x").read_bytes() == (tmp_path / "y").read_bytes()


def test_refuses_what_it_would_have_to_pickle(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match=r"a\.0 must hold tensors, numbers, strings and None, got object"):
        save_tree({"a": [object()]}, tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("damage", ["cut", "text", "empty", "other", "kind"])
def test_a_damaged_file_is_refused(damage: str, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x"
    save_tree({"a": torch.randn(100)}, path)
    if damage == "cut":
        os.truncate(path, 200)
    elif damage == "other":
        save_file({"a": torch.zeros(2)}, path)
    elif damage == "kind":
        save_file({"a": torch.zeros(2)}, path, {"hypersphere-state/1": '["pickle", 0]'})
    else:
        path.write_bytes(b"" if damage == "empty" else b"hello" * 10)
    with pytest.raises(ValueError, match="is not a complete checkpoint"):
        load_tree(path)


def test_a_failed_write_leaves_the_old_file(tmp_path: pathlib.Path) -> None:
    write_text(tmp_path / "x", "old")

    def fail(temporary: str) -> None:
        pathlib.Path(temporary).write_text("half")
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        write_atomically(tmp_path / "x", fail)
    assert (tmp_path / "x").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_permissions_are_the_users_own(tmp_path: pathlib.Path) -> None:
    (tmp_path / "plain").touch()
    save_tree({"a": torch.zeros(1)}, tmp_path / "tree")
    write_json(tmp_path / "json", {"a": 1})
    modes = {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert len(modes) == 1


def test_leftovers_go_and_nothing_else(tmp_path: pathlib.Path) -> None:
    kept = [".hidden", ".other.12.part", ".x.part", ".x.y.part", "x", "x.part"]
    for name in (*kept, ".x.4194305.part"):
        (tmp_path / name).touch()
    (tmp_path / ".x.4194306.part").mkdir()  # no process has this id
    (tmp_path / ".x.4194306.part" / ".tmpAbC").touch()  # a writer's own temporary file
    (tmp_path / f".x.{os.getppid()}.part").touch()
    remove_leftovers(tmp_path, {"x"}, skip_running=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*kept, f".x.{os.getppid()}.part"])
    remove_leftovers(tmp_path, {"x"})
    assert sorted(path.name for path in tmp_path.iterdir()) == kept


def test_the_next_write_cleans_up_after_a_killed_one(tmp_path: pathlib.Path) -> None:
    child = os.fork()
    if child == 0:
        write_atomically(tmp_path / "x", lambda path: os.kill(os.getpid(), signal.SIGKILL))
    os.waitpid(child, 0)
    assert [path.name for path in tmp_path.iterdir()] == [f".x.{child}.part"]
    write_atomically(tmp_path / "x", lambda path: pathlib.Path(path).write_text("new"))
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_json_has_no_word_for_what_is_not_finite(tmp_path: pathlib.Path) -> None:
    write_json(tmp_path / "x", {"energy": math.inf, "rows": [{"a": math.nan}, (1.5, 2)]})
    refused = {"parse_constant": lambda word: pytest.fail(f"{word} is not JSON")}
    assert json.loads((tmp_path / "x").read_text(), **refused) == {"energy": None, "rows": [{"a": None}, [1.5, 2]]}


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), SafetensorError("No space left on device")])
def test_a_full_disk_names_the_file_and_leaves_nothing(error, tmp_path):
    def write(temporary):
        pathlib.Path(temporary).write_bytes(b"half")
        raise error

    with pytest.raises(OSError, match=r"x.safetensors cannot be written: No space left on device"):
        write_atomically(tmp_path / "x.safetensors", write)
    assert not list(tmp_path.iterdir())


def test_tensors_carry_checksums_and_are_plain_to_others(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x.safetensors"
    tensors = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.zeros(0), "c": torch.tensor(3)}
    save_tensors(tensors, path)
    assert all(torch.equal(load_file(path)[name], tensor) for name, tensor in tensors.items())
    assert all(torch.equal(load_tensors(path)[name], tensor) for name, tensor in tensors.items())
    raw = path.read_bytes()
    wrong = 0
    for at in range(0, len(raw), 3):
        changed = bytearray(raw)
        changed[at] ^= 4
        path.write_bytes(changed)
        try:
            found = load_tensors(path)
        except ValueError:
            continue
        wrong += found.keys() != tensors.keys() or not all(torch.equal(found[n], t) for n, t in tensors.items())
    assert wrong == 0
    save_file({"d": torch.ones(2)}, path)  # files of other programs have no checksum
    assert torch.equal(load_tensors(path)["d"], torch.ones(2))


def test_json_that_cannot_be_read_is_an_error_and_an_absent_file_is_none(tmp_path: pathlib.Path) -> None:
    assert read_json(tmp_path / "x") is None
    for content in (b"{", b"\xff\xfe\xff", b"[" * 100_000):
        (tmp_path / "x").write_bytes(content)
        with pytest.raises(ValueError, match="x is not readable as JSON"):
            read_json(tmp_path / "x")
