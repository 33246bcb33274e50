"""A killed run resumes with the same log and weights as an uninterrupted run."""

import pathlib
import random
from typing import Any

import pytest
from safetensors.torch import load_file

from hypersphere.files import load_tree
from hypersphere.training import PlateauRate, Settings, call
from tests.training.runs import own, run_and_kill, small

OWN = Settings(steps=9, evaluate_every=3, checkpoint_every=2, log_every=1, threads=1, pictures=False)

RUN = small(steps=32, evaluate_every=16, pictures=False)
FILES = ("log.jsonl", "metrics.json", "model.safetensors", "best.safetensors", "last.safetensors")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[pathlib.Path, float]:
    folder = tmp_path_factory.mktemp("whole") / "run"
    code, seconds = run_and_kill(RUN, folder)
    assert code == 0
    return folder, seconds


def same(one: pathlib.Path, other: pathlib.Path) -> None:
    for name in FILES:
        assert (one / name).read_bytes() == (other / name).read_bytes(), name
    assert not list(other.glob(".*.part"))


def kill_and_finish(reference: pathlib.Path, seconds: float, folder: pathlib.Path, wanted: int, seed: int) -> None:
    moments, kills, runs = random.Random(seed), 0, 0
    while kills < wanted:
        run = folder / str(runs)
        for _ in range(
            4
        ):  # several kills in one run are a harder test; without a limit, a busy machine would never finish
            early = moments.random() < 0.2
            code, _ = run_and_kill(RUN, run, moments.uniform(0, 0.3 if early else 0.5 * seconds), early=early)
            kills += code == -9
            if code == 0:
                break
        assert code == 0 or run_and_kill(RUN, run)[0] == 0
        same(reference, run)
        runs += 1
        assert runs < 3 * wanted, f"only {kills} kills in {runs} runs"


def test_killed_at_random_moments(whole: tuple[pathlib.Path, float], tmp_path: pathlib.Path) -> None:
    kill_and_finish(*whole, tmp_path, 3, 0)


@pytest.mark.slow
def test_killed_at_dozens_of_random_moments(whole: tuple[pathlib.Path, float], tmp_path: pathlib.Path) -> None:
    kill_and_finish(*whole, tmp_path, 36, 1)


@pytest.mark.parametrize("write", [2, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 3, 4, 5, 6))])
def test_killed_during_the_write_of_a_checkpoint(
    write: int, whole: tuple[pathlib.Path, float], tmp_path: pathlib.Path
) -> None:
    assert run_and_kill(RUN, tmp_path / "run", die_at_write=write)[0] == -9
    assert list((tmp_path / "run").glob(".*.part")), "it did not die while writing"
    assert run_and_kill(RUN, tmp_path / "run")[0] == 0
    same(whole[0], tmp_path / "run")


@pytest.mark.parametrize(
    "changes",
    [
        {"ema": 0.9, "accumulate": 2, "clip": 1.0, "gradient_checkpointing": True},
        {"precision": "bf16", "average": 2, "layer_decay": 0.8, "schedule": call(PlateauRate, patience=1, warmup=2)},
    ],
    ids=["averaged", "half"],
)
def test_ones_own_network_and_dataset_go_on_after_kills(changes: dict[str, Any], tmp_path: pathlib.Path) -> None:
    settings = OWN.replace(**changes)
    own(settings, tmp_path / "whole").run()
    assert run_and_kill(settings, tmp_path / "run", die_at_step=3)[0] == -9
    assert run_and_kill(settings, tmp_path / "run", die_at_write=2)[0] == -9
    own(settings, tmp_path / "run").run()
    same(tmp_path / "whole", tmp_path / "run")
    assert (tmp_path / "run" / "embedder.safetensors").exists()


def test_the_reference_learned_and_kept_its_state(whole: tuple[pathlib.Path, float]) -> None:
    state = load_tree(whole[0] / "last.safetensors")
    assert state["step"] == 32
    assert state["loader"] == {"seed": 0, "epoch": 1, "position": 10 * 64}
    assert any("projection" in key for key in state["task"])
    assert state["task"]["model.classifier.annealing.steps"] == 32
    assert load_file(whole[0] / "model.safetensors").keys() == {
        k.removeprefix("model.") for k in state["task"] if k.startswith("model.")
    }
