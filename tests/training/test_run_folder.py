import json
import os
import pathlib
import sys
import types
from typing import Any

import pytest

from hypersphere.files import load_tree
from hypersphere.training import Experiment, to_json
from hypersphere.training.run_folder import RunFolder, RunLog, environment, read_log, stored_document
from tests.training.runs import small


def document(nested=None, **changes):
    return json.loads(to_json(small(nested, **changes)))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("folder") / "run"
    Experiment(small({"backbone.feature_dim": 2}, steps=4, evaluate_every=2), folder).run()
    return folder


def test_explains_itself(finished: pathlib.Path) -> None:
    names = {path.relative_to(finished).as_posix() for path in finished.rglob("*") if path.is_file()}
    boards = {name for name in names if name.startswith("events.out.tfevents.")}  # only if tensorboard is installed
    assert names - boards == {
        *("config.json", "environment.json", "log.jsonl", "events.jsonl", "metrics.json", "README.md", "run.json"),
        *("last.safetensors", "last-1.safetensors", "best.safetensors", "model.safetensors", "embedder.safetensors"),
        "evidence.safetensors",
        *(f"pictures/{name}.png" for name in ("angles", "features", "energy", "training")),
        ".lock",
    }
    owned = json.loads((finished / "run.json").read_text())["files"]
    assert names - {".lock"} <= set(owned)


def test_a_folder_with_another_config_is_refused(finished: pathlib.Path) -> None:
    with pytest.raises(ValueError, match=r"holds a run with other settings \(optimizer.lr is 0.05 there, 0.1 here\)"):
        RunFolder(finished).open(document({"backbone.feature_dim": 2, "optimizer.lr": 0.1}, steps=4, evaluate_every=2))


def test_a_run_may_go_on_with_another_timeout(tmp_path: pathlib.Path) -> None:
    for timeout in (600, 30):
        folder = RunFolder(tmp_path)
        folder.open(document(timeout=timeout))
        folder.close()
        assert stored_document(tmp_path)["timeout"] == timeout


def test_fresh_forgets_the_run_and_nothing_else(tmp_path: pathlib.Path) -> None:
    folder = RunFolder(tmp_path)
    folder.open(document())
    for name in ("last.safetensors", "log.jsonl", "events.jsonl"):
        folder.record(name)
        (tmp_path / name).write_text("old")
    (tmp_path / "mine.txt").write_text("kept")
    (tmp_path / "last-9.safetensors").write_text("not recorded")
    folder.close()
    with pytest.raises(ValueError, match=r"holds files of something else \(last-9.safetensors\)"):
        folder.open(document(seed=5), fresh=True)
    assert (tmp_path / "last.safetensors").read_text() == "old"  # refused before any file was deleted
    (tmp_path / "last-9.safetensors").unlink()
    folder.open(document(seed=5), fresh=True)
    folder.close()
    left = ["config.json", "environment.json", "mine.txt", "run.json"]
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != ".lock") == left
    assert stored_document(tmp_path)["seed"] == 5


def test_a_record_cannot_reach_outside_the_folder(tmp_path: pathlib.Path) -> None:
    (tmp_path / "precious").write_text("mine")
    folder = RunFolder(tmp_path / "run")
    folder.open(document())
    folder.record("../precious")
    folder.close()
    folder.open(document(seed=1), fresh=True)
    folder.close()
    assert (tmp_path / "precious").read_text() == "mine"


def test_a_folder_of_something_else_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "weights.safetensors").touch()
    with pytest.raises(
        ValueError, match=r"holds files of something else \(weights.safetensors\): choose an empty folder"
    ):
        RunFolder(tmp_path).open(document())
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="cannot be written"):
        RunFolder(tmp_path / "file").open(document())


def test_two_writers_are_refused(tmp_path: pathlib.Path) -> None:
    first, second = RunFolder(tmp_path), RunFolder(tmp_path)
    first.open(document())
    with pytest.raises(ValueError, match=r"is being written by process \d+ on .*: wait for it, or choose another"):
        second.open(document())
    first.close()
    second.open(document())
    second.close()


def test_older_checkpoints_are_kept_and_named_when_the_newest_is_damaged(tmp_path: pathlib.Path) -> None:
    folder = RunFolder(tmp_path)
    folder.open(document())
    for step in range(5):
        folder.checkpoint({"step": step}, keep=3)
    assert [path.name for path in folder.checkpoints()] == [f"last{end}.safetensors" for end in ("", "-1", "-2")]
    assert folder.load()["step"] == 4
    folder.last.write_bytes(folder.last.read_bytes()[:20])
    with pytest.raises(ValueError, match=r"last-1.safetensors of step 3 is complete: move it to last.safetensors"):
        folder.load()
    for path in folder.checkpoints():
        path.write_bytes(b"")
    with pytest.raises(ValueError, match=r"last\.safetensors"):
        folder.load()
    folder.close()


def test_seconds_add_up_over_resumptions(tmp_path: pathlib.Path) -> None:
    rows = [("start", "00"), ("interrupt", "05"), ("resume", "20"), ("resume", "30"), ("end", "33")]
    lines = (json.dumps({"event": e, "step": 0, "time": f"2026-01-01T00:00:{s}+00:00"}) for e, s in rows)
    (tmp_path / "events.jsonl").write_text("\n".join(lines) + "\n")
    assert RunFolder(tmp_path).seconds() == 8.0  # the part from 20 to 30 was killed and has no end
    assert RunFolder(tmp_path / "nowhere").seconds() == 0.0


def test_no_run_names_the_nearest(finished: pathlib.Path, tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match=r"holds no run: there is no config.json in it; did you mean run\?"):
        stored_document(finished.parent / "runn")
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ValueError, match="is not readable as JSON"):
        stored_document(tmp_path)


def test_the_environment_names_versions_and_no_one() -> None:
    found = environment()
    assert found["packages"]["torch"]
    assert found["packages"]["safetensors"]
    assert not {"hostname", "user", "node"} & found.keys()


def test_a_start_that_fails_before_its_first_step_takes_its_folder_with_it(tmp_path: pathlib.Path) -> None:
    folder = RunFolder(tmp_path / "a" / "b" / "run")
    folder.open(document())
    folder.failed = True
    folder.close()
    assert not (tmp_path / "a").exists()
    (tmp_path / "mine").mkdir()
    folder = RunFolder(tmp_path / "mine" / "run")
    folder.open(document())
    (folder.path / "notes.txt").write_text("not the run's")
    folder.failed = True
    folder.close()
    assert sorted(path.name for path in folder.path.iterdir()) == ["notes.txt"]  # other programs' files are not deleted
    folder = RunFolder(tmp_path / "mine" / "run")  # the folder existed before
    folder.open(document())
    folder.checkpoint({"step": 0}, keep=1)
    folder.failed = True
    folder.close()
    assert folder.last.exists()


def test_only_leftovers_of_own_files_are_cleaned(tmp_path: pathlib.Path) -> None:
    folder = RunFolder(tmp_path)
    folder.open(document())
    folder.record("last.safetensors")
    folder.close()
    (tmp_path / ".last.safetensors.7.part").mkdir()
    (tmp_path / ".last.safetensors.7.part" / ".tmpXyz").touch()
    (tmp_path / ".precious.7.part").touch()
    folder.open(document())
    folder.close()
    assert [path.name for path in tmp_path.glob(".*.part")] == [".precious.7.part"]


def test_a_kill_between_two_links_leaves_nothing_behind(tmp_path: pathlib.Path) -> None:
    folder = RunFolder(tmp_path)
    folder.open(document())
    folder.checkpoint({"step": 0}, keep=2)
    os.link(folder.last, tmp_path / "last-1.safetensors")  # killed before the next checkpoint replaced it
    folder.checkpoint({"step": 1}, keep=2)
    folder.close()
    assert not list(tmp_path.glob(".*.part"))
    assert [load_tree(path)["step"] for path in folder.checkpoints()] == [1, 0]


def test_a_kill_between_the_first_two_files_leaves_a_folder_that_can_be_used(tmp_path):
    RunFolder(tmp_path).record("run.json", "config.json")
    folder = RunFolder(tmp_path)
    folder.open({"steps": 1})
    folder.close()
    assert (tmp_path / "config.json").is_file()


def test_a_torn_line_of_events_is_left_out_and_ends_before_the_next(tmp_path: pathlib.Path) -> None:
    line = json.dumps({"event": "start", "step": 0, "time": "2026-01-01T00:00:00+00:00"})
    (tmp_path / "events.jsonl").write_text(line + '\n{"event": "en')
    folder = RunFolder(tmp_path)
    assert folder.seconds() == 0.0
    folder.event("end", 3)
    lines = (tmp_path / "events.jsonl").read_text().splitlines()
    assert len(lines) == 3
    assert json.loads(lines[2])["event"] == "end"
    assert folder.seconds() > 0


def test_a_file_system_without_locks_is_named(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import errno
    import fcntl

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(ValueError, match=r"cannot be locked, so that two processes could write it: No locks available"):
        RunFolder(tmp_path).open(document())


def test_a_deleted_newest_checkpoint_does_not_start_anew(tmp_path: pathlib.Path) -> None:
    folder = RunFolder(tmp_path)
    folder.open(document())
    for step in (5, 10):
        folder.checkpoint({"step": step}, keep=2)
    folder.last.unlink()
    assert folder.checkpoints()
    with pytest.raises(
        ValueError, match=r"there is no file .*last-1.safetensors of step 5 is complete: move it to last"
    ):
        folder.load()
    folder.close()


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
