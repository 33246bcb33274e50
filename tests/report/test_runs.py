"""Complete and incomplete run folders can be read."""

import pathlib

import pytest

from hypersphere.report.runs import choose_names, read_runs
from tests.report.runs_for_tests import write_run


def test_everything_is_read(tmp_path):
    (run,) = read_runs([write_run(tmp_path / "run", choices=[{"key": "m", "value": 1, "reason": "r"}])])
    assert run.name == "run"
    assert run.seconds == 75
    assert run.settings["head"] == "ArcFace"
    assert run.choices[0]["reason"] == "r"
    assert run.series("lr") == (list(range(21)), [0.1] * 21)
    assert run.shape("conv") == (6, 27)
    assert run.shape("absent") is None
    assert run.evidence is not None


def test_a_bare_folder_is_enough(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (run,) = read_runs([tmp_path])
    assert run.log == []
    assert run.evidence is None
    assert run.weights("weight") == {}


def test_names_tell_folders_apart():
    assert choose_names([pathlib.Path("/r/a/x"), pathlib.Path("/r/b/x")]) == ["a/x", "b/x"]
    assert choose_names([pathlib.Path("/r/x"), pathlib.Path("/r/x")]) == ["x (1)", "x (2)"]


@pytest.mark.parametrize(
    ("file", "content"), [("choices.json", "{}"), ("metrics.json", "{"), ("evidence.safetensors", "x")]
)
def test_damaged_files_are_named(tmp_path, file, content):
    folder = write_run(tmp_path / "run")
    (folder / file).write_text(content)
    with pytest.raises(ValueError, match=file):
        read_runs([folder])
