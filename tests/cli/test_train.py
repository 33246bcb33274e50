import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest

from hypersphere.cli import train
from hypersphere.cli.main import main
from hypersphere.experiments import Experiment, read_log, recipes

FEW = ["steps=3", "evaluate_every=3", "checkpoint_every=3", "threads=1"]


def command(*arguments, folder, processes=0, **options):
    launcher = (
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes)]
        if processes
        else [sys.executable]
    )
    source = pathlib.Path(train.__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    line = [*launcher, "-m", "hypersphere.cli.main", "train", *arguments]
    return subprocess.run(
        line, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False, **options
    )


def test_trains_to_the_end_in_a_process_of_its_own(tmp_path):
    done = command("opt-mlp-mnist", "--size", "smoke", "optimizer.lr=0.02", "optimizer.milestones=1,2", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "accuracy" in done.stdout
    assert "runs/opt-mlp-mnist" in done.stdout
    folder = tmp_path / "runs" / "opt-mlp-mnist"
    stored = json.loads((folder / "config.json").read_text())
    assert stored["optimizer"]["lr"] == 0.02
    assert stored["optimizer"]["milestones"] == [1, 2]
    for name in ("metrics.json", "log.jsonl", "model.safetensors", "README.md"):
        assert (folder / name).exists()


@pytest.mark.slow
def test_of_two_processes_one_speaks(tmp_path):
    done = command("lsoftmax-mnist", "--size", "smoke", *FEW, folder=tmp_path, processes=2)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("after 3 steps") == 1
    assert len(read_log(tmp_path / "runs" / "lsoftmax-mnist")) > 2


def test_resumes_what_was_interrupted(tmp_path, capsys, monkeypatch):
    folder = str(tmp_path / "run")
    whole = Experiment.run

    def interrupted(self, progress):
        def stop(step, row):
            progress(step, row)
            if step == 2 and "loss" in row:
                os.kill(os.getpid(), signal.SIGINT)

        return whole(self, stop)

    monkeypatch.setattr(Experiment, "run", interrupted)
    assert main(["train", "opt-mlp-mnist", "--size", "smoke", "-o", folder, "threads=1"]) == 130
    out = capsys.readouterr().out
    assert "stopped at step 2" in out
    assert f"hypersphere train --resume {folder}" in out
    monkeypatch.setattr(Experiment, "run", whole)
    assert main(["train", "--resume", folder]) == 0
    assert "after 4 steps" in capsys.readouterr().out
    assert main(["train", "opt-mlp-mnist", "--size", "smoke", "-o", folder]) == 1
    assert "holds a run with other settings (threads is 1 there, 0 here)" in capsys.readouterr().err
    assert main(["train", "opt-mlp-mnist", *FEW, "--size", "smoke", "-o", folder, "--fresh"]) == 0
    assert "after 3 steps" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nope"], "there is no recipe 'nope'; there are adversarial-cifar10, "),
        ([], "which recipe? There are adversarial-cifar10, "),
        (["mhe-cifar10", "steps"], "knobs are changed by KEY=VALUE, got 'steps'"),
        (["--resume", "x", "--fresh"], "--resume goes on with a run as it is"),
        (["--resume", "x"], "x holds no run: there is no config.json in it"),
        (["opt-mlp-mnist", "--size", "smoke", "data.name=Faces"], "data.name must be one of Digits, "),
        (["opt-mlp-mnist", "--size", "smoke", "head.name=ASoftmax", "head.scale=-1.0"], "scale must be"),
    ],
)
def test_a_user_error_is_one_line(arguments, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["train", *arguments]) == 1
    error = capsys.readouterr().err
    assert error.startswith("hypersphere train: ")
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("optimizer.lrr=1", "--optimizer.lr FLOAT"),
        ("steps=many", "invalid literal for int"),
        ("steps=0", "steps must be an integer ≥ 1, got 0"),
        ("head.name=Cosine", "invalid choice 'Cosine'"),
    ],
)
def test_a_wrong_knob_is_a_wrong_command_line(override, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        main(["train", "mhe-cifar10", override])
    error = capsys.readouterr().err
    assert stop.value.code == 2
    assert message in error
    assert not (tmp_path / "runs").exists()


def test_an_unknown_option_is_refused(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["train", "mhe-cifar10", "--sise", "smoke"])
    assert stop.value.code == 2
    assert "unrecognized arguments: --sise" in capsys.readouterr().err


def test_keys_lists_every_knob(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["train", "mhe-cifar10", "--keys"])
    out = capsys.readouterr().out
    assert stop.value.code == 0
    assert "--energy.half-space" in out or "--energy.half_space" in out


@pytest.mark.parametrize(
    ("override", "path", "value"),
    [
        ("optimizer.betas=0.5,0.9", ("optimizer", "betas"), (0.5, 0.9)),
        ("optimizer.milestones=", ("optimizer", "milestones"), ()),
        ("optimizer.milestones=7", ("optimizer", "milestones"), (7,)),
        ("monitor=-error", ("monitor",), "-error"),
        ("data.size=None", ("data", "size"), None),
        ("data.batch_size=7", ("data", "batch_size"), 7),
        ("energy.half_space=False", ("energy", "half_space"), False),
        ("model.operator.skip=a,b", ("model", "operator", "skip"), ("a", "b")),
        ("attack.epsilon=0.1", ("attack", "epsilon"), 0.1),
    ],
)
def test_overrides_change_one_knob(override, path, value):
    found = train.chosen("mhe-cifar10", "laptop", [override])
    for name in path:
        found = getattr(found, name)
    assert found == value


def test_nothing_is_changed_without_overrides():
    for entry in recipes.RECIPES.values():
        assert train.chosen(entry.name, "paper", []) == entry.config("paper")
