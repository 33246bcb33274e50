"""A run with a non-finite loss or weight raises an error that names the last good checkpoint."""

import json
import math

import pytest
import torch

from hypersphere.files import is_finite, load_tree
from hypersphere.training import Callback, Experiment, NonFiniteLossError, Settings, call
from hypersphere.training.errors import explain_misfits
from tests.training.runs import own, small

FEW = Settings(steps=6, evaluate_every=3, checkpoint_every=1, log_every=1, threads=1, pictures=False)


class Poison(Callback):
    """Writes a non-finite number to a place that affects no loss before the next step."""

    def __init__(self, what):
        self.what = what

    def on_step(self, trainer):
        if trainer.step == 4 and self.what == "weights":
            next(trainer.task.parameters()).data.view(-1)[0] = math.inf
        if trainer.step == 4 and self.what == "momentum":
            state = trainer.optimizers[0].state
            next(iter(state.values()))["momentum_buffer"].view(-1)[0] = math.nan


@pytest.mark.parametrize("what", ["weights", "momentum"])
def test_no_checkpoint_holds_what_is_not_finite(what, tmp_path):
    trainer = own(FEW, tmp_path / "run")
    trainer.callbacks.append(Poison(what))
    with pytest.raises(NonFiniteLossError, match=r"not finite at step 4; the last good checkpoint is .*of step 3"):
        trainer.run()
    for path in trainer.folder.checkpoints():
        assert is_finite({key: load_tree(path)[key] for key in ("task", "optimizers")})
    assert [load_tree(path)["step"] for path in trainer.folder.checkpoints()] == [3, 2]
    assert not (tmp_path / "run" / "metrics.json").exists()


def test_it_is_noted_in_the_events(tmp_path):
    trainer = own(FEW, tmp_path / "run")
    trainer.folder.open(trainer.document)
    with pytest.raises(NonFiniteLossError, match=r"too large; none was saved\. Try a smaller optimizer\.lr"):
        trainer.raise_non_finite("too large")
    assert json.loads((tmp_path / "run" / "events.jsonl").read_text())["event"] == "not finite"
    trainer.folder.close()


class Undefined(Callback):
    """Logs an infinite energy, as for two equal neurons."""

    def on_start(self, trainer):
        measures = trainer.task.measures
        trainer.task.measures = lambda: {**measures(), "energy/x": math.inf, "worst": math.nan}


def test_a_measure_that_is_undefined_is_null(tmp_path):
    trainer = own(FEW.replace(monitor="worst"), tmp_path)
    trainer.callbacks.append(Undefined())
    trainer.run()
    refuse = {"parse_constant": lambda word: pytest.fail(f"{word} is not JSON")}
    metrics = json.loads((tmp_path / "metrics.json").read_text(), **refuse)
    assert metrics["energy/x"] is None
    assert metrics["worst"] is None
    assert metrics["accuracy"] >= 0
    for line in (tmp_path / "log.jsonl").read_text().splitlines():
        json.loads(line, **refuse)
    assert "| worst | undefined |" in (tmp_path / "README.md").read_text()


class Impatient(Callback):
    """Raises KeyboardInterrupt outside of the steps: before the first checkpoint, or in the final writes."""

    def __init__(self, when):
        self.when = when

    def on_start(self, trainer):
        if self.when == "first":
            raise KeyboardInterrupt
        trainer.task.write_embedder = self.stop

    def stop(self, *_):
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("when", "said"),
    [
        ("first", "stopped at step 0, before anything was saved; .* starts anew"),
        ("final", "stopped at step 6; .* goes on from step 6"),
    ],
)
def test_an_interrupt_outside_the_steps_tells_the_truth(when, said, tmp_path):
    trainer = own(FEW, tmp_path / "run")
    trainer.callbacks.append(Impatient(when))
    with pytest.raises(KeyboardInterrupt, match=said):
        trainer.run()
    again = own(FEW, tmp_path / "run")
    again.callbacks.append(Callback())
    assert again.run()["accuracy"] >= 0
    assert (tmp_path / "run" / "metrics.json").exists()


@pytest.mark.parametrize(
    "error", [TypeError("no"), KeyError("no"), AttributeError("no"), RuntimeError("shapes"), ZeroDivisionError()]
)
def test_what_parts_raise_is_a_value_error(error):
    with pytest.raises(ValueError, match="the parts of this run do not fit together") as caught, explain_misfits():
        raise error
    assert caught.value.__cause__ is error


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("gloo: connection closed"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory"),
        MemoryError(),
    ],
)
def test_what_is_no_misfit_passes(error):
    with pytest.raises(type(error)) as caught, explain_misfits():
        raise error
    assert caught.value is error


def test_a_network_of_graphs_on_images_leaves_no_folder(tmp_path):
    from hypersphere.models import gcn

    config = small(backbone=call(gcn), energy=None, steps=1, pictures=False)
    with pytest.raises(ValueError, match="do not fit together"):
        Experiment(config, tmp_path / "runs" / "x").run()
    assert not (tmp_path / "runs").exists()


def test_memory_that_is_not_there_is_not_called_a_misfit():
    with pytest.raises(RuntimeError), explain_misfits():
        torch.empty(1 << 60)
