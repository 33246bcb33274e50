import json
import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest

from hypersphere import recipes
from hypersphere.cli import train
from hypersphere.cli.main import main
from hypersphere.data import Digits
from hypersphere.training import Experiment, LostProcessError, read_log, to_json
from tests.processes import typed

FEW = ["steps=3", "evaluate_every=3", "checkpoint_every=3", "threads=1"]


def launched(*arguments, folder, processes):
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes)]
    source = pathlib.Path(train.__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    line = [*launcher, "-m", "hypersphere.cli.main", "train", *arguments]
    return subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False)


def test_trains_to_the_end_in_a_process_of_its_own(tmp_path):
    settings = ["optimizer.lr=0.02", "schedule=StepRate", "schedule.milestones=1,2"]
    done = typed("train", "opt-mlp-mnist", "--size", "smoke", *settings, cwd=tmp_path)
    assert "accuracy" in done.stdout
    assert "runs/opt-mlp-mnist" in done.stdout
    folder = tmp_path / "runs" / "opt-mlp-mnist"
    stored = json.loads((folder / "config.json").read_text())
    assert stored["optimizer"]["lr"] == 0.02
    assert stored["schedule"]["milestones"] == [1, 2]
    for name in ("metrics.json", "log.jsonl", "model.safetensors", "README.md"):
        assert (folder / name).exists()


@pytest.mark.slow
def test_of_two_processes_one_speaks(tmp_path):
    done = launched("lsoftmax-mnist", "--size", "smoke", *FEW, folder=tmp_path, processes=2)
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


def test_a_lost_process_is_told_by_those_left_with_the_line_that_goes_on(tmp_path, capsys, monkeypatch):
    def lost(self, progress):
        raise LostProcessError("process 1 of 2 lost another one (closed) at step 3; x goes on from step 2")

    monkeypatch.setattr(Experiment, "run", lost)
    monkeypatch.setenv("RANK", "1")  # RANK alone starts no process group
    assert main(["train", "opt-mlp-mnist", "--size", "smoke", "-o", str(tmp_path / "run"), "threads=1"]) == 1
    line = f"goes on from step 2: hypersphere train --resume {tmp_path / 'run'}"
    assert line in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nope"], "there is no recipe 'nope'; there are adversarial-cifar10, "),
        (["mhe-cifar1"], "did you mean mhe-cifar10?"),
        ([], "NAME of a recipe is missing: give a name that `hypersphere recipes` lists"),
        (["mhe-cifar10", "steps"], "settings are changed by KEY=VALUE, got 'steps'"),
        (["--resume", "x", "--fresh"], "--resume continues a run with the same settings"),
        (["--resume", "x"], "x holds no run: there is no config.json in it"),
        (["opt-mlp-mnist", "--size", "smoke", "data=Faces"], "data must be one of "),
        (["opt-mlp-mnist", "--size", "smoke", "head=ASoftmax", "head.scale=-1.0"], "scale must be"),
        (["mhe-cifar10", "optimizer.lrr=1"], "there is no key optimizer.lrr: SGD has "),
        (["mhe-cifar10", "optimizer.lrr=1"], "did you mean lr?"),
        (["mhe-cifar10", "steps=many"], "steps must be an integer, got 'many'"),
        (["mhe-cifar10", "steps=0"], "steps must be an integer ≥ 1, got 0"),
        (["mhe-cifar10", "head=ArcFac"], "got 'ArcFac'; did you mean ArcFace?"),
        (["mhe-cifar10", "backbone=nowhere.nets:make"], "backbone: 'nowhere.nets:make' cannot be imported"),
    ],
)
def test_a_user_error_is_one_line(arguments, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert main(["train", *arguments]) == 1
    error = capsys.readouterr().err
    assert error.startswith("hypersphere train: ")
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_an_unknown_option_is_refused(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["train", "mhe-cifar10", "--sise", "smoke"])
    assert stop.value.code == 2
    assert "unrecognized arguments: --sise" in capsys.readouterr().err


def test_keys_lists_every_key(capsys):
    assert main(["train", "mhe-cifar10", "--keys", "head=ArcFace", "augment=RandomErasing"]) == 0
    lines = capsys.readouterr().out.splitlines()
    found = {line.split("=")[0]: line for line in lines}
    for path in ("steps", "optimizer.lr", "energy.half_space", "head.m", "augment.probability", "samples.validation"):
        assert path in found
    assert found["energy.half_space"].startswith("energy.half_space=True")
    assert "CosFace" in found["head"]
    assert "optimizer steps." in found["steps"]
    assert "head.num_classes" not in found  # determined by the data


@pytest.mark.parametrize(
    ("override", "path", "value"),
    [
        ("schedule.milestones=", ("schedule", "milestones"), ()),
        ("schedule.milestones=7", ("schedule", "milestones"), (7,)),
        ("monitor=-error", ("monitor",), "-error"),
        ("size=None", ("size",), None),
        ("batch_size=7", ("batch_size",), 7),
        ("energy.half_space=False", ("energy", "half_space"), False),
        ("energy.skip=a,b", ("energy", "skip"), ("a", "b")),
        ("freeze=body.conv1", ("freeze",), ("body.conv1",)),
    ],
)
def test_overrides_change_one_setting(override, path, value):
    found = train.choose_recipe("mhe-cifar10", "laptop", [override])
    for name in path:
        found = found.get(name) if hasattr(found, "get") else getattr(found, name)
    assert found == value


def test_calls_and_their_arguments():
    words = ["optimizer=Adam", "optimizer.betas=0.5,0.9", "task=Adversarial", "task.epsilon=0.1", "head=ArcFace"]
    words += ["head.m=0.4", "backbone.operator=Operator", "backbone.operator.magnitude=Tanh"]
    words += ["backbone.operator.magnitude.radius=2", "energy=CoMHE", "energy.projection=AnglePreservingProjection"]
    found = train.choose_recipe("mhe-cifar10", "laptop", [*words, "energy.projection.mode=unrolled"])
    assert found.optimizer.get("betas") == (0.5, 0.9)
    assert found.task.get("epsilon") == 0.1
    assert found.head.arguments == {"m": 0.4}
    assert found.backbone.get("operator").get("magnitude").arguments == {"radius": 2.0}
    assert found.energy.get("projection").arguments == {"mode": "unrolled"}


def test_nothing_is_changed_without_overrides():
    for entry in recipes.RECIPES.values():
        assert to_json(train.choose_recipe(entry.name, "paper", [])) == to_json(entry.config("paper"))


OWN = """
import torch
from torch import nn
from hypersphere.data import Digits

def make(dim: int = 4) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, dim))

def digits(train: bool = True):
    return Digits(train=train)
"""


def test_ones_own_network_and_data_by_their_path(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "mypackage").mkdir()
    (tmp_path / "mypackage" / "nets.py").write_text(OWN)
    mine = ["backbone=mypackage.nets:make", "backbone.dim=3", "data=mypackage.nets:digits", "orthogonal=none"]
    assert main(["train", "opt-mlp-mnist", "--size", "smoke", *mine, *FEW]) == 0
    folder = tmp_path / "runs" / "opt-mlp-mnist"
    stored = json.loads((folder / "config.json").read_text())
    assert stored["backbone"] == {"call": "mypackage.nets:make", "dim": 3}
    assert stored["data"]["call"] == "mypackage.nets:digits"
    capsys.readouterr()
    assert main(["train", "--resume", str(folder)]) == 1
    assert "code outside hypersphere: it is imported only if you say that you trust it" in capsys.readouterr().err
    assert main(["train", "--resume", str(folder), "--trust"]) == 0
    from hypersphere.recognition import Embedder

    assert Embedder.load(folder / "embedder.safetensors", trust=True)(Digits().data[:2]).shape == (2, 3)


NONSENSE = [
    ("clip=-1", "clip must be a number > 0"),
    ("optimizer.weight_decay=-1", "weight_decay must be a finite number ≥ 0"),
    ("optimizer.momentum=NaN", "momentum must be a finite number ≥ 0"),
    ("schedule.warmup=-1", "warmup must be an integer ≥ 0"),
    ("threads=1000000", "threads must lie in 0 … 1024"),
    ("head.m=1e6", "margin m must be a number ≥ 1 and below 100"),
    ("monitor=nothing", "monitor must be one of accuracy"),
    ("augment=RotateJitter", "augment=Compose does not fit samples of shape|RotateJitter rotates clouds"),
    ("backbone=gcn", "do not fit together"),
    ("backbone.width=1e9", "memory|width"),
]


@pytest.mark.parametrize(("setting", "said"), NONSENSE)
def test_nonsense_is_refused_with_its_range_and_leaves_no_folder(setting, said, tmp_path, capsys):
    output = tmp_path / "runs" / "x"
    few = [*FEW, "pictures=false", "samples.measured=20"]
    assert main(["train", "lsoftmax-mnist", "--size", "smoke", "-o", str(output), *few, setting]) == 1
    assert re.search(said, capsys.readouterr().err)
    assert not output.parent.exists()


def test_pixels_as_they_are_can_be_trained_on(tmp_path):
    few = [*FEW, "pictures=false", "samples.measured=20", "normalize=none"]
    assert main(["train", "lsoftmax-mnist", "--size", "smoke", "-o", str(tmp_path / "x"), *few]) == 0


@pytest.mark.parametrize("name", ["../../x", "/x", "a/b", "..", ""])
def test_a_name_cannot_leave_the_folder_of_runs(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "lsoftmax-mnist", "--size", "smoke", *FEW, f"name={name}"]) == 1
    assert "name must be the name of a folder inside runs" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_new_run_from_the_checkpoint_of_another(tmp_path, capsys):
    few = [*FEW, "pictures=false", "samples.measured=20"]
    assert main(["train", "opt-mlp-mnist", "--size", "smoke", "-o", str(tmp_path / "a"), *few]) == 0
    assert main(["train", "--resume", str(tmp_path / "a"), "optimizer.lr=0.01"]) == 1
    assert "KEY=VALUE needs --output NEW" in capsys.readouterr().err
    changed = ["-o", str(tmp_path / "b"), "optimizer.lr=0.01", "steps=5"]
    assert main(["train", "--resume", str(tmp_path / "a"), *changed]) == 0
    events = (tmp_path / "b" / "events.jsonl").read_text().splitlines()
    assert json.loads(events[0]) | {"time": ""} == {"event": "start", "step": 3, "time": ""}
