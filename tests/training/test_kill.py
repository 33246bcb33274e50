"""A run that is killed goes on as if nothing had happened: its log and weights are those of a run that was left alone."""

import pathlib
import random

import pytest
from safetensors.torch import load_file

from hypersphere.files import load_tree
from tests.training.runs import run_and_kill, small

FILES = ("log.jsonl", "metrics.json", "model.safetensors", "best.safetensors", "last.safetensors")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[pathlib.Path, float]:
    folder = tmp_path_factory.mktemp("whole") / "run"
    code, seconds = run_and_kill(small(), folder)
    assert code == 0
    return folder, seconds


def same(one: pathlib.Path, other: pathlib.Path) -> None:
    for name in FILES:
        assert (one / name).read_bytes() == (other / name).read_bytes(), name
    assert not list(other.glob(".*.part"))


def test_killed_at_random_moments(whole: tuple[pathlib.Path, float], tmp_path: pathlib.Path) -> None:
    reference, seconds = whole
    moments, kills, runs = random.Random(0), 0, 0
    while kills < 14:
        folder, code = tmp_path / str(runs), -9
        while code == -9:  # several kills of one run are harder than one
            early = moments.random() < 0.2
            code, _ = run_and_kill(small(), folder, moments.uniform(0, 0.3 if early else 0.5 * seconds), early=early)
            kills += code == -9
        assert code == 0
        same(reference, folder)
        runs += 1
        assert runs < 30, f"only {kills} kills in {runs} runs"


@pytest.mark.parametrize("write", range(1, 7))
def test_killed_during_the_write_of_a_checkpoint(
    write: int, whole: tuple[pathlib.Path, float], tmp_path: pathlib.Path
) -> None:
    assert run_and_kill(small(), tmp_path / "run", die_at_write=write)[0] == -9
    assert list((tmp_path / "run").glob(".*.part")), "it did not die while writing"
    assert run_and_kill(small(), tmp_path / "run")[0] == 0
    same(whole[0], tmp_path / "run")


def test_the_reference_learned_and_kept_its_state(whole: tuple[pathlib.Path, float]) -> None:
    state = load_tree(whole[0] / "last.safetensors")
    assert state["step"] == 60
    assert state["loader"] == {"seed": 0, "epoch": 2, "position": 16 * 64}
    assert any("projection" in key for key in state["task"])
    assert state["task"]["model.classifier.annealing.steps"] == 60
    assert load_file(whole[0] / "model.safetensors").keys() == {
        k.removeprefix("model.") for k in state["task"] if k.startswith("model.")
    }
