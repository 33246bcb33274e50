import json
import pathlib

import pytest
import torch
from safetensors.torch import load_file

from hypersphere.experiments import Experiment
from hypersphere.training.folder import Folder, environment
from tests.training.runs import small


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("folder") / "run"
    Experiment(small(steps=4, evaluate_every=2, model__feature_dim=2), folder).run()
    return folder


def test_explains_itself(finished: pathlib.Path) -> None:
    names = {path.relative_to(finished).as_posix() for path in finished.rglob("*") if path.is_file()}
    assert names == {
        *("config.json", "environment.json", "log.jsonl", "events.jsonl", "metrics.json", "README.md"),
        *("last.safetensors", "best.safetensors", "model.safetensors", "embedder.safetensors"),
        *(f"pictures/{name}.png" for name in ("angles", "features", "energy", "training")),
    }
    card = (finished / "README.md").read_text()
    assert "| head | ASoftmax |" in card
    assert "![features](pictures/features.png)" in card
    assert "| accuracy | " in card


def test_the_models_keys_are_those_of_the_plain_network(tmp_path: pathlib.Path, finished: pathlib.Path) -> None:
    config = small(steps=2, evaluate_every=2, model__feature_dim=2, orthogonal__method="cayley", energy__name="none")
    experiment = Experiment(config, tmp_path)
    experiment.run()
    tensors = load_file(tmp_path / "model.safetensors")
    assert tensors.keys() == load_file(finished / "model.safetensors").keys()
    torch.testing.assert_close(tensors["body.conv1.0.conv.weight"], experiment.task.model.body.conv1[0].conv.weight)


def test_a_folder_with_another_config_is_refused(finished: pathlib.Path) -> None:
    with pytest.raises(ValueError, match=r"holds a run with other settings \(optimizer.lr is 0.05 there, 0.1 here\)"):
        Folder(finished).open(small(steps=4, evaluate_every=2, model__feature_dim=2, optimizer__lr=0.1))


def test_fresh_forgets_the_run(tmp_path: pathlib.Path) -> None:
    folder = Folder(tmp_path)
    folder.open(small())
    for name in ("last.safetensors", "log.jsonl", "events.jsonl"):
        (tmp_path / name).write_text("old")
    (tmp_path / "mine.txt").write_text("kept")
    folder.open(small(seed=5), fresh=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "environment.json", "mine.txt"]
    assert json.loads((tmp_path / "config.json").read_text())["seed"] == 5


def test_a_folder_of_something_else_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "weights.safetensors").touch()
    with pytest.raises(ValueError, match="holds files of something else: choose an empty folder"):
        Folder(tmp_path).open(small())


def test_seconds_add_up_over_resumptions(tmp_path: pathlib.Path) -> None:
    rows = [("start", "00"), ("interrupt", "05"), ("resume", "20"), ("resume", "30"), ("end", "33")]
    lines = (json.dumps({"event": e, "step": 0, "time": f"2026-01-01T00:00:{s}+00:00"}) for e, s in rows)
    (tmp_path / "events.jsonl").write_text("\n".join(lines) + "\n")
    assert Folder(tmp_path).seconds() == 8.0  # a killed part, from 20 to 30, has no end
    assert Folder(tmp_path / "nowhere").seconds() == 0.0


def test_the_environment_names_versions_and_no_one() -> None:
    found = environment()
    assert found["packages"]["torch"]
    assert not {"hostname", "user", "node"} & found.keys()
