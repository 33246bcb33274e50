import json
import os
import pathlib
import re
import subprocess
import sys
import time

import pytest

from hypersphere.cli.main import main
from tests.processes import Command, typed
from tests.training.fitting.drawn import QUICK, folder

ROOT = pathlib.Path(__file__).parent.parent.parent
QUICKLY = [*QUICK, "pictures=false", "steps=4"]


def in_a_new_interpreter(*arguments, cwd):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "hypersphere.cli.main", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment, timeout=600, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    return done


def test_the_road_from_a_folder_to_strangers_turned_away(tmp_path):
    folder(tmp_path / "people", identities=24)
    folder(tmp_path / "members", identities=4, images=6, first=40)
    folder(tmp_path / "probes", identities=2, images=4, first=40, start=50)
    folder(tmp_path / "strangers", identities=3, images=4, first=60)
    more = ["steps=150", "batch_size=48", "backbone.width=0.2", "feature_dim=32", "threads=1", "pictures=false"]
    said = in_a_new_interpreter("fit", "people", "-o", "run", *more, cwd=tmp_path).stdout
    assert "144 images of 24 identities: 6 images each" in said
    assert "size=16,16: the median size of the pictures" in said
    assert "unseen identities: EER" in said
    assert re.search(r"rank-1 +\d", said)
    embedder = "run/embedder.safetensors"
    figures = json.loads(typed("evaluate", embedder, "members", "--json", cwd=tmp_path).stdout)["figures"]
    assert figures["rank-1"]["value"] > 0.9
    typed("export", embedder, "--onnx", "run/embedder.onnx", "--images", "members", cwd=tmp_path)
    assert (tmp_path / "run" / "embedder.onnx").stat().st_size > 10_000
    typed("gallery", "enrol", "known.db", embedder, "members", cwd=tmp_path)
    threshold = typed("gallery", "calibrate", "known.db", embedder, "people", "--far", "0.001", cwd=tmp_path).stdout
    assert threshold.startswith("threshold")
    known = typed("gallery", "identify", "known.db", embedder, "probes", cwd=tmp_path).stdout.splitlines()
    others = typed("gallery", "identify", "known.db", embedder, "strangers", cwd=tmp_path).stdout.splitlines()
    right = [line for line in known if line.split("\t")[1] == pathlib.Path(line.split("\t")[0]).parent.name]
    assert len(right) >= 7
    assert sum("\tunknown" in line for line in others) >= 11


def test_the_report_as_json(tmp_path, capsys):
    source = folder(tmp_path / "people", identities=5)
    assert main(["fit", str(source), *QUICKLY, "-o", str(tmp_path / "run"), "--json"]) == 0
    out = capsys.readouterr().out
    report = json.loads(out)
    assert set(report["figures"]["EER"]) == {"value", "unit", "interval", "interval over", "count"}
    assert report["figures"]["EER"]["interval over"] == "identities"
    assert {"worst pairs", "confused", "curves", "held_out", "recommended thresholds", "calibration", "notes"} <= set(
        report
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: path / "none", "there is no file or folder"),
        (lambda path: path, "holds no picture"),
        (lambda path: folder(path / "one", 1), "at least 2 are needed"),
    ],
)
def test_bad_input_is_one_sentence(make, message, tmp_path, capsys):
    assert main(["fit", str(make(tmp_path)), "-o", str(tmp_path / "run")]) == 1
    error = capsys.readouterr().err
    assert error.startswith("hypersphere fit: ")
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_keys_show_what_is_used(capsys):
    """A default is shown only if it is used, and a slot offers only values that fit."""
    assert main(["fit", "--keys", "steps=5", "optimizer.lr=0.3"]) == 0
    lines = {line.partition("=")[0]: line.partition("=")[2] for line in capsys.readouterr().out.splitlines()}
    for key in ("size", "backbone", "head", "head.m", "optimizer.momentum"):
        assert lines[key].startswith("(chosen from the data)")
    assert lines["steps"].startswith("5 ")
    assert lines["optimizer.lr"].startswith("0.3 ")
    assert lines["validation"].startswith("0.2 ")
    assert "resnet20" in lines["backbone"]
    assert "GCN" not in lines["backbone"]
    assert "CoMHE" in lines["energy"]
    assert "keep_dominant" not in lines["head"]
    for name in ("merge", "rewind", "use_task"):
        assert name not in lines["energy"] + lines["orthogonal"]


def test_keys_and_no_source(capsys):
    assert main(["fit", "--keys"]) == 0
    assert "head_first=0" in capsys.readouterr().out
    assert main(["fit"]) == 1
    assert "SOURCE is missing" in capsys.readouterr().err


def test_a_disk_that_fills_up(tmp_path):
    """Files are limited to 100 kB, so the first checkpoint cannot be written."""
    pytest.importorskip("resource")
    folder(tmp_path / "people", identities=5)
    done = typed("fit", "people", "-o", "run", "threads=1", cwd=tmp_path, code=1, largest=100_000)
    assert re.fullmatch(r"hypersphere fit: .*\.safetensors cannot be written: .*\n", done.stderr)
    assert not list((tmp_path / "run").glob(".*.part"))


def test_a_killed_run_goes_on_when_typed_again(tmp_path):
    folder(tmp_path / "people", identities=5)
    process = Command("fit", "people", "-o", "run", *QUICK, "steps=4000", "pictures=false", cwd=tmp_path)
    deadline = time.monotonic() + 300
    log = tmp_path / "run" / "log.jsonl"
    while time.monotonic() < deadline and not (log.exists() and '"step": 40' in log.read_text()):
        time.sleep(0.1)
    process.interrupt()
    done = process.end(120)
    assert done.returncode == 130
    assert "type the same command again to resume" in done.stdout
    events = [json.loads(text) for text in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    assert [event["event"] for event in events] == ["start", "interrupt"]
    assert events[-1]["step"] >= 40
