import json
import os
import pathlib
import signal
import threading
from typing import Any

import pytest
import torch
from hypersphere.files import load_tree

from hypersphere.experiments import Config, Experiment, NonFiniteLossError, read_log, replace
from tests.training.runs import small


def run(folder: pathlib.Path, config: Config, stop_at: int | None = None) -> dict[str, float]:
    """Train; at a step, as if someone had pressed Ctrl-C."""

    def progress(step: int, row: dict[str, Any]) -> None:
        if step == stop_at:
            os.kill(os.getpid(), signal.SIGINT)

    return Experiment(config, folder).run(progress)


@pytest.mark.parametrize(
    "changes",
    [
        {"orthogonal__method": "ogd", "optimizer__rotation_momentum": 0.5, "energy__name": "none"},
        {
            "optimizer__name": "adamw",
            "optimizer__clip": 0.5,
            "optimizer__lr": 0.01,
            "energy__projection": "AnglePreservingProjection",
        },
        {
            "model__operator__magnitude": "Tanh",
            "model__operator__learn": True,
            "model__operator__project_every": 2,
            "precision": "bf16",
        },
        {
            "model__name": "gcn",
            "task": "graph",
            "data__name": "PlantedGraph",
            "model__table": None,
            "energy__name": "none",
        },
    ],
    ids=["ogd", "adamw", "operators", "dropout"],
)
def test_interrupted_and_resumed_is_bit_equal(changes: dict[str, Any], tmp_path: pathlib.Path) -> None:
    config = small(steps=9, evaluate_every=6, checkpoint_every=4, log_every=1, **changes)
    whole = run(tmp_path / "whole", config)
    for stop in (2, 7):
        with pytest.raises(KeyboardInterrupt, match=f"stopped at step {stop}; .*parts goes on from there"):
            run(tmp_path / "parts", config, stop)
    assert Experiment.resume(tmp_path / "parts").run() == whole
    for name in ("log.jsonl", "model.safetensors", "metrics.json", "last.safetensors", "best.safetensors"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "parts" / name).read_bytes(), name


def test_a_finished_run_stays_as_it_is(tmp_path: pathlib.Path) -> None:
    config = small(steps=2)
    first = run(tmp_path, config)
    before = (tmp_path / "model.safetensors").read_bytes()
    assert run(tmp_path, config) == first
    assert (tmp_path / "model.safetensors").read_bytes() == before


def test_best_is_the_best_and_last_the_last(tmp_path: pathlib.Path) -> None:
    run(tmp_path, small(steps=12, evaluate_every=3, monitor="-accuracy"))  # the worst is at the start
    assert load_tree(tmp_path / "best.safetensors")["step"] < load_tree(tmp_path / "last.safetensors")["step"] == 12
    rows = [row["accuracy"] for row in read_log(tmp_path) if "accuracy" in row]
    assert load_tree(tmp_path / "best.safetensors").keys() == load_tree(tmp_path / "last.safetensors").keys()
    assert load_tree(tmp_path / "best.safetensors")["best"] == -min(rows)


def test_a_loss_that_is_not_finite_stops_and_names_the_checkpoint(tmp_path: pathlib.Path) -> None:
    config = small(
        optimizer__lr=1e30,
        energy__name="none",
        head__name="Softmax",
        head__annealed=False,
        optimizer__schedule="constant",
    )
    with pytest.raises(
        NonFiniteLossError,
        match=r"the loss became .* at step \d+ .*last good checkpoint is .*last.safetensors \(of step 0\)",
    ):
        run(tmp_path, config)
    state = load_tree(tmp_path / "last.safetensors")
    assert all(value.isfinite().all() for value in state["task"].values())
    assert "non-finite" in (tmp_path / "events.jsonl").read_text()


def test_an_unknown_monitor_is_an_error_that_lists_the_measures(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match=r"monitor must be one of accuracy, error, .*, got 'acuracy'"):
        run(tmp_path, small(monitor="acuracy"))


def test_the_log_has_what_the_theory_watches(tmp_path: pathlib.Path) -> None:
    run(tmp_path, small(steps=4, log_every=2, evaluate_every=2))
    rows = read_log(tmp_path)
    measured = rows[-1]
    for key in ("accuracy", "intra_angle", "inter_angle", "feature_norm", "lambda", "energy/classifier"):
        assert key in measured
    trained = [row for row in rows if "loss" in row]
    assert [row["step"] for row in trained] == [1, 2, 4]
    assert trained[0]["loss"] == pytest.approx(trained[0]["objective"] + trained[0]["hidden"])
    assert json.loads((tmp_path / "metrics.json").read_text())["accuracy"] == measured["accuracy"]


def test_a_run_learns(tmp_path: pathlib.Path) -> None:
    assert run(tmp_path, small(steps=120, data__augment="none", model__width=0.25, evaluate_every=120))["accuracy"] > 90


def test_nothing_to_resume_and_another_number_of_processes(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match="holds no run: there is no config"):
        Experiment.resume(tmp_path)
    config = small(steps=2)
    run(tmp_path / "run", config)
    state = load_tree(tmp_path / "run" / "last.safetensors")
    from hypersphere.files import save_tree

    save_tree(state | {"random": state["random"] * 2}, tmp_path / "run" / "last.safetensors")
    with pytest.raises(ValueError, match="was written by 2 processes, resume it with as many, got 1"):
        Experiment(config, tmp_path / "run")


def test_runs_outside_the_main_thread(tmp_path: pathlib.Path) -> None:
    results: list[dict[str, float]] = []
    thread = threading.Thread(target=lambda: results.append(run(tmp_path, small(steps=2))))
    thread.start()
    thread.join()
    assert results[0]["accuracy"] >= 0


def test_threads_are_set(tmp_path: pathlib.Path) -> None:
    Experiment(replace(small(), threads=1), tmp_path)
    assert torch.get_num_threads() == 1
