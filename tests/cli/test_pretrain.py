import json
import time

import pytest

from hypersphere.cli.main import main
from tests.processes import Command, typed
from tests.training.fitting.drawn import folder

QUICKLY = ["backbone.width=0.1", "pictures=false", "threads=1", "batch_size=16"]


def test_from_pictures_to_an_embedder_file(tmp_path):
    folder(tmp_path / "people", identities=5)
    said = typed("pretrain", "people", "-o", "start.safetensors", *QUICKLY, "steps=4", cwd=tmp_path).stdout
    assert "size=16,16: the median size of the pictures" in said
    assert "hypersphere fit PEOPLE weights=start.safetensors" in said
    metrics = json.loads((tmp_path / "start" / "metrics.json").read_text())
    assert {"alignment", "uniformity", "objective", "effective_rank"} <= set(metrics)
    typed("embed", "start.safetensors", "people", "-o", "features.safetensors", cwd=tmp_path)


def test_killed_it_continues(tmp_path):
    folder(tmp_path / "people", identities=5)
    line = ["pretrain", "people", "-o", "run", *QUICKLY, "steps=60", "checkpoint_every=2"]
    command = Command(*line, cwd=tmp_path)
    until = time.monotonic() + 120
    while not (tmp_path / "run" / "last.safetensors").exists() and time.monotonic() < until:
        time.sleep(0.01)
    command._process.kill()
    assert command.end().returncode == -9
    typed(*line, cwd=tmp_path)
    typed(*line[:3], "whole", *line[4:], cwd=tmp_path)
    assert (tmp_path / "run" / "embedder.safetensors").read_bytes() == (
        tmp_path / "whole" / "embedder.safetensors"
    ).read_bytes()
    events = (tmp_path / "run" / "events.jsonl").read_text()
    assert "resume" in events


def test_lists_its_settings(capsys):
    assert main(["pretrain", "--keys"]) == 0
    out = capsys.readouterr().out
    assert "teacher=" in out
    assert "uniformity=" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "SOURCE is missing"),
        (["nowhere"], "there is no file or folder"),
        (["nowhere", "head=ArcFace"], "head has no meaning"),
    ],
)
def test_one_sentence_for_a_wrong_line(arguments, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["pretrain", *arguments]) == 1
    assert message in capsys.readouterr().err
