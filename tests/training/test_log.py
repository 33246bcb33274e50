import pathlib
import sys
import types
from typing import Any

import pytest

from hypersphere.training.log import RunLog, read_log


def test_rows_come_back_in_order(tmp_path: pathlib.Path) -> None:
    log = RunLog(tmp_path)
    log.append({"step": 1, "loss": 0.1})
    log.append({"step": 2, "loss": 1e-300})
    assert read_log(tmp_path) == [{"step": 1, "loss": 0.1}, {"step": 2, "loss": 1e-300}]
    log.close()


def test_reopening_cuts_what_came_after(tmp_path: pathlib.Path) -> None:
    log = RunLog(tmp_path)
    log.append({"step": 1})
    size = log.size
    log.append({"step": 2})
    log.close()
    log = RunLog(tmp_path, size, step=1)
    log.append({"step": 3})
    log.close()
    assert [row["step"] for row in read_log(tmp_path)] == [1, 3]


def test_a_log_shorter_than_its_checkpoint_is_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match=r"log.jsonl is shorter than its checkpoint says \(10 bytes\)"):
        RunLog(tmp_path, 10)


def test_an_unfinished_line_is_left_out(tmp_path: pathlib.Path) -> None:
    (tmp_path / "log.jsonl").write_text('{"step": 1}\n{"ste')
    assert read_log(tmp_path) == [{"step": 1}]
    assert read_log(tmp_path / "nowhere") == []


def test_tensorboard_gets_the_numbers_when_it_is_there(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Any] = []

    class Writer:
        def __init__(self, folder: str, purge_step: int | None):
            written.append((folder, purge_step))

        def add_scalar(self, *row: Any) -> None:
            written.append(row)

        def close(self) -> None:
            written.append("closed")

    monkeypatch.setitem(sys.modules, "tensorboard", types.ModuleType("tensorboard"))
    board = types.ModuleType("torch.utils.tensorboard")
    board.SummaryWriter = Writer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", board)
    log = RunLog(tmp_path, step=4)
    log.append({"step": 5, "loss": 2.0, "note": "text"})
    log.close()
    assert written == [(str(tmp_path), 5), ("loss", 2.0, 5), "closed"]
