import json
import os
import pathlib
import signal
import threading
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from hypersphere import models
from hypersphere.data import Digits, PlantedGraph
from hypersphere.files import load_tree, save_tree
from hypersphere.objectives import ArcFace, CenterLoss, Softmax
from hypersphere.operators import Operator, magnitudes
from hypersphere.orthogonal import OGD, overparameterize
from hypersphere.recognition import Embedder, Gallery, embed
from hypersphere.training import (
    Callback,
    Classification,
    Config,
    ConstantRate,
    Experiment,
    Graph,
    NonFiniteLossError,
    PlateauRate,
    Settings,
    Trainer,
    call,
    read_log,
    replace,
    run_folder,
)
from hypersphere.training.processes import seed_generators
from hypersphere.training.run_folder import RunFolder
from tests.training.own import Net, NoisyNet, Squares, Stream, Tokens
from tests.training.runs import own, small

FILES = ("log.jsonl", "model.safetensors", "metrics.json", "last.safetensors", "best.safetensors")
FEW = Settings(steps=9, evaluate_every=6, checkpoint_every=4, log_every=1, threads=1, pictures=False)


def run(folder: pathlib.Path, config: Config, stop_at: int | None = None) -> dict[str, float]:
    return Experiment(config, folder).run(stopping(stop_at))


def stopping(stop_at: int | None) -> Any:
    """Return a callback that sends SIGINT at a step."""

    def progress(step: int, row: dict[str, Any]) -> None:
        if step == stop_at:
            os.kill(os.getpid(), signal.SIGINT)

    return progress


def same(one: pathlib.Path, other: pathlib.Path) -> None:
    for name in FILES:
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


@pytest.mark.parametrize(
    "changes",
    [
        {
            "orthogonal": call(overparameterize, method="ogd"),
            "rotations": call(OGD, momentum=0.5, lr=0.01),
            "energy": None,
        },
        {"optimizer": call(torch.optim.AdamW, lr=0.01), "clip": 0.5},
        {
            "backbone.operator": call(Operator, magnitude=call(magnitudes.Tanh)),
            "project_every": 2,
            "precision": "bf16",
            "energy": None,
        },
        {
            "task": call(Graph),
            "data": call(PlantedGraph),
            "backbone": call(models.gcn),
            "energy": None,
        },
        {"ema": 0.9, "accumulate": 2, "schedule": call(PlateauRate, patience=1), "gradient_checkpointing": True},
        {"average": 2, "patience": 2, "freeze": ("body.conv1",), "rates": {"classifier": 2.0}, "layer_decay": 0.9},
    ],
    ids=["ogd", "adamw", "operators", "dropout", "ema", "average"],
)
def test_interrupted_and_resumed_is_bit_equal(changes: dict[str, Any], tmp_path: pathlib.Path) -> None:
    config = small(steps=9, evaluate_every=6, checkpoint_every=4, log_every=1, pictures=False)
    config = replace(config, **changes)
    whole = run(tmp_path / "whole", config)
    for stop in (2, 7):
        with pytest.raises(KeyboardInterrupt, match=f"stopped at step {stop}; .*parts goes on from there"):
            run(tmp_path / "parts", config, stop)
    assert Experiment.resume(tmp_path / "parts").run() == whole
    same(tmp_path / "whole", tmp_path / "parts")


def steps_kept(folder: pathlib.Path) -> list[int]:
    return [load_tree(path)["step"] for path in RunFolder(folder).checkpoints()]


def test_the_checkpoint_of_an_interruption_does_not_enter_the_average(tmp_path: pathlib.Path) -> None:
    config = small(steps=10, evaluate_every=10, checkpoint_every=2, log_every=1, pictures=False, average=3)
    whole = run(tmp_path / "whole", config)
    for stop in (5, 8, 9):  # between two regular checkpoints, at one, and between two again
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "parts", config, stop)
    assert steps_kept(tmp_path / "parts") == [9, 8, 6]
    assert Experiment.resume(tmp_path / "parts").run() == whole
    assert steps_kept(tmp_path / "parts") == steps_kept(tmp_path / "whole") == [10, 8, 6]
    same(tmp_path / "whole", tmp_path / "parts")


@pytest.mark.parametrize("links", [0, 1, 2, 3])
def test_a_kill_between_renaming_and_writing_checkpoints_duplicates_none(
    links: int, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder(tmp_path)
    for step in range(4):
        folder.checkpoint({"step": step}, 4)
    real, made = run_folder._replace_by_link, []

    def killed(source: pathlib.Path, target: pathlib.Path) -> None:
        if len(made) == links:
            raise ZeroDivisionError
        made.append(target)
        real(source, target)

    def no_write(*_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(run_folder, "_replace_by_link", killed)
    monkeypatch.setattr(run_folder, "save_tree", no_write)
    with pytest.raises(ZeroDivisionError):
        folder.checkpoint({"step": 4}, 4)
    monkeypatch.undo()
    folder.checkpoint({"step": 4}, 4)
    assert steps_kept(tmp_path) == [4, 3, 2, 1]


def test_ones_own_network_and_dataset(tmp_path: pathlib.Path) -> None:
    """A user's network and dataset train, resume bitwise equal, and give an embedder that galleries accept."""
    own(FEW, tmp_path / "whole").run()
    with pytest.raises(KeyboardInterrupt):
        own(FEW, tmp_path / "parts").run(stopping(5))
    own(FEW, tmp_path / "parts").run()
    same(tmp_path / "whole", tmp_path / "parts")
    with pytest.raises(ValueError, match=r"network is 'tests.training.own:Net', code outside hypersphere"):
        Embedder.load(tmp_path / "whole" / "embedder.safetensors")
    embedder = Embedder.load(tmp_path / "whole" / "embedder.safetensors", trust=True)
    from PIL import Image

    picture = (Squares()[0][0] * 255).byte()
    Image.fromarray(picture.permute(1, 2, 0).numpy()).save(tmp_path / "one.png")
    features = embed(embedder, [tmp_path / "one.png"])
    with Gallery(tmp_path / "gallery.db", embedder.fingerprint) as gallery:
        gallery.enrol("someone", features.features)
        assert gallery.identify(features.features, threshold=0.5)[0].best.identity == "someone"


def test_a_network_that_draws_from_numpy_is_resumed_bit_for_bit(tmp_path: pathlib.Path) -> None:
    def trainer(folder: str) -> Trainer:
        seed_generators(3)
        head = call(ArcFace, m=0.2, scale=8.0)
        return Trainer(
            Classification(NoisyNet(), head, Squares(), Squares(30, seed=1), batch_size=16), tmp_path / folder, FEW
        )

    trainer("whole").run()
    with pytest.raises(KeyboardInterrupt):
        trainer("parts").run(stopping(5))
    trainer("parts").run()
    same(tmp_path / "whole", tmp_path / "parts")


def test_a_stream_and_a_network_of_tokens(tmp_path: pathlib.Path) -> None:
    head = call(Softmax)
    task = Classification(Tokens(), head, Stream(), Squares(30, seed=1), batch_size=16)
    metrics = Trainer(task, tmp_path, FEW).run()
    assert "accuracy" in metrics
    card = (tmp_path / "README.md").read_text()
    assert "| training samples | a stream |" in card
    with pytest.raises(ValueError, match="measured must be given if train is an iterable dataset"):
        Classification(Net(), head, Stream())


def test_another_task_in_the_folder_is_refused(tmp_path: pathlib.Path) -> None:
    own(FEW, tmp_path).run()
    with pytest.raises(
        ValueError, match=r"holds a run with other settings \(task.training samples is 80 there, 40 here\)"
    ):
        own(FEW, tmp_path, train=Squares(40)).run()


def test_several_losses_add_up(tmp_path: pathlib.Path) -> None:
    own(FEW, tmp_path, losses=[(0.01, CenterLoss(6, 5))]).run()
    row = next(row for row in read_log(tmp_path) if "loss" in row)
    assert row["loss"] == pytest.approx(row["objective"] + row["CenterLoss"], rel=1e-5)


def test_callbacks_hear_everything_and_keep_their_state(tmp_path: pathlib.Path) -> None:
    class Count(Callback):
        def __init__(self) -> None:
            self.heard: dict[str, int] = {"start": 0, "step": 0, "log": 0, "evaluate": 0, "end": 0}

        def on_start(self, trainer: Trainer) -> None:
            self.heard["start"] += 1

        def on_step(self, trainer: Trainer) -> None:
            self.heard["step"] += 1

        def on_log(self, trainer: Trainer, row: dict[str, Any]) -> None:
            self.heard["log"] += 1

        def on_evaluate(self, trainer: Trainer, row: dict[str, Any]) -> None:
            self.heard["evaluate"] += 1

        def on_end(self, trainer: Trainer, metrics: dict[str, float]) -> None:
            self.heard["end"] += 1

        def state_dict(self) -> dict[str, Any]:
            return dict(self.heard)

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.heard = dict(state)

    config, counts = small(steps=6, evaluate_every=3, checkpoint_every=2, log_every=2, pictures=False), Count()
    with pytest.raises(KeyboardInterrupt):
        Experiment(config, tmp_path, callbacks=[counts]).run(stopping(4))
    again = Count()
    Experiment(config, tmp_path, callbacks=[again]).run()
    assert again.heard == {"start": 2, "step": 6, "log": 7, "evaluate": 3, "end": 1}


def test_accumulated_batches_are_one_large_batch(tmp_path: pathlib.Path) -> None:
    plain = small(
        {"backbone.norm": "none"},
        steps=4,
        evaluate_every=4,
        checkpoint_every=4,
        energy=None,
        pictures=False,
        augment=None,
    )
    run(tmp_path / "whole", plain)
    run(tmp_path / "parts", replace(plain, batch_size=32, accumulate=2))
    one, two = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "parts"))
    for name, tensor in one.items():
        torch.testing.assert_close(tensor, two[name], rtol=1e-4, atol=1e-6)


def test_clipping_bounds_the_step(tmp_path: pathlib.Path) -> None:
    plain = {"optimizer": call(torch.optim.SGD, lr=1.0), "schedule": call(ConstantRate)}
    trainer = own(FEW.replace(steps=1, clip=1e-3, **plain), tmp_path)
    before = [parameter.detach().clone() for parameter in trainer.task.parameters()]
    trainer.run()
    moved = [(p.detach() - b).flatten() for p, b in zip(trainer.task.parameters(), before, strict=True)]
    assert torch.cat(moved).norm().item() == pytest.approx(1e-3, rel=1e-2)


def test_the_moving_average_is_what_is_kept_and_frozen_layers_stay(tmp_path: pathlib.Path) -> None:
    trainer = own(FEW.replace(ema=0.9, freeze=("body.last",)), tmp_path)
    before = trainer.task.model.body.last.weight.detach().clone()
    trainer.run()
    state, kept = load_tree(tmp_path / "last.safetensors"), load_file(tmp_path / "model.safetensors")
    assert all(torch.equal(kept[name], tensor) for name, tensor in state["ema"]["shadow"].items())
    assert not torch.equal(kept["body.layers.0.weight"], state["task"]["model.body.layers.0.weight"])
    assert torch.equal(state["task"]["model.body.last.weight"], before)


def test_half_precision_is_that_of_the_network(tmp_path: pathlib.Path) -> None:
    trainer, seen = own(FEW.replace(steps=1, precision="bf16"), tmp_path), []
    trainer.task.model.body.last.register_forward_hook(lambda module, x, y: seen.append((module.training, y.dtype)))
    trainer.run()
    assert (True, torch.bfloat16) in seen
    assert trainer.task.model.body.last.weight.dtype == torch.float32


def test_early_stopping_stops(tmp_path: pathlib.Path) -> None:
    config = small({"optimizer.lr": 0.02}, steps=60, evaluate_every=2, patience=2, monitor="-accuracy", pictures=False)
    experiment = Experiment(config, tmp_path)
    experiment.run()
    assert experiment.step < 60
    again = Experiment(config, tmp_path)
    again.run()
    assert again.step == experiment.step


def test_averaged_weights_are_the_mean_of_the_last_checkpoints(tmp_path: pathlib.Path) -> None:
    run(tmp_path, small(steps=12, average=3, energy=None, pictures=False))
    states = [load_tree(tmp_path / f"{name}.safetensors") for name in ("last", "last-1", "last-2")]
    assert [state["step"] for state in states] == [12, 8, 4]
    mean = sum(state["task"]["model.body.conv1.0.conv.weight"] for state in states) / 3
    torch.testing.assert_close(load_file(tmp_path / "model.safetensors")["body.conv1.0.conv.weight"], mean)


def test_starts_from_the_weights_of_a_run(tmp_path: pathlib.Path) -> None:
    run(tmp_path / "first", small(steps=2, energy=None, pictures=False))
    second = Experiment(
        small(steps=1, energy=None, pictures=False, weights=str(tmp_path / "first")), tmp_path / "second"
    )
    assert "missing" in second.task.started
    for name, tensor in load_file(tmp_path / "first" / "model.safetensors").items():
        assert torch.equal(tensor, second.task.model.state_dict()[name]), name


@pytest.mark.slow
@pytest.mark.untyped
def test_compiled_networks_train(tmp_path: pathlib.Path) -> None:
    assert run(tmp_path, small(steps=2, compile=True, energy=None, pictures=False))["accuracy"] >= 0


def test_a_finished_run_stays_as_it_is(tmp_path: pathlib.Path) -> None:
    config = small(steps=2)
    first = run(tmp_path, config)
    before = (tmp_path / "model.safetensors").read_bytes()
    assert run(tmp_path, config) == first
    assert (tmp_path / "model.safetensors").read_bytes() == before


def test_best_is_the_best_and_last_the_last(tmp_path: pathlib.Path) -> None:
    run(tmp_path, small(steps=12, evaluate_every=3, monitor="-accuracy"))  # best = lowest accuracy
    assert load_tree(tmp_path / "best.safetensors")["step"] < load_tree(tmp_path / "last.safetensors")["step"] == 12
    rows = [row["accuracy"] for row in read_log(tmp_path) if "accuracy" in row]
    assert load_tree(tmp_path / "best.safetensors").keys() == load_tree(tmp_path / "last.safetensors").keys()
    assert load_tree(tmp_path / "best.safetensors")["best"] == -min(rows)


def diverging(**changes: Any) -> Config:
    return small({"optimizer.lr": 1e30}, energy=None, head=call(Softmax), schedule=call(ConstantRate), **changes)


def test_a_loss_that_is_not_finite_stops_and_names_the_checkpoint(tmp_path: pathlib.Path) -> None:
    with pytest.raises(
        NonFiniteLossError, match=r"at step \d+.*last good checkpoint is .*last.safetensors \(of step 0\)"
    ):
        run(tmp_path, diverging())
    state = load_tree(tmp_path / "last.safetensors")
    assert all(value.isfinite().all() for value in state["task"].values())
    assert "not finite" in (tmp_path / "events.jsonl").read_text()


def test_weights_that_are_not_finite_are_never_saved(tmp_path: pathlib.Path) -> None:
    """The last loss is finite but its update is not, so no checkpoint and no model is written."""
    with pytest.raises(NonFiniteLossError, match=r"the features are not finite at step 1; .*\(of step 0\)"):
        run(tmp_path, replace(diverging(steps=1), {"optimizer.lr": 1e30, "optimizer.weight_decay": 1e30}))
    with pytest.raises(NonFiniteLossError, match="weights or the optimizer's state are not finite at step 1"):
        run(
            tmp_path / "unseen",
            replace(diverging(steps=2), {"optimizer.lr": 1e30, "optimizer.weight_decay": 1e30}, checkpoint_every=1),
        )
    for folder in (tmp_path, tmp_path / "unseen"):
        assert not (folder / "model.safetensors").exists()
        assert load_tree(folder / "last.safetensors")["step"] == 0


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
    parts = {k: v for k, v in trained[0].items() if k not in ("step", "loss", "lr")}
    assert {"objective", "hidden", "output"} <= parts.keys()
    assert trained[0]["loss"] == pytest.approx(sum(parts.values()), rel=1e-5)
    assert json.loads((tmp_path / "metrics.json").read_text())["accuracy"] == measured["accuracy"]


def test_a_run_learns(tmp_path: pathlib.Path) -> None:
    config = small(steps=60, augment=None, energy=None, evaluate_every=60, checkpoint_every=60, pictures=False)
    assert run(tmp_path, replace(config, head=call(Softmax)))["accuracy"] > 85


@pytest.mark.untyped
def test_compile_wraps_the_features(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    """The features are passed to the compiler. Compiling takes a minute, so only slow tests do it."""
    asked = []
    monkeypatch.setattr(torch, "compile", lambda function: asked.append(function) or function)
    run(tmp_path, small(steps=1, compile=True, energy=None, pictures=False))
    assert [function.__name__ for function in asked] == ["features"]


def test_resumes_on_another_number_of_processes(tmp_path: pathlib.Path) -> None:
    config = small(steps=6, checkpoint_every=2, pictures=False)
    whole = run(tmp_path / "whole", config)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "parts", config, 4)
    path = tmp_path / "parts" / "last.safetensors"
    state = load_tree(path)
    save_tree(state | {"random": state["random"] * 2}, path)  # as written by two processes
    assert run(tmp_path / "parts", config) == whole  # this run does not use torch's generator


def test_nothing_to_resume(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match="holds no run: there is no config"):
        Experiment.resume(tmp_path)


def test_a_failed_start_leaves_no_folder(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match=r"samples.classes must lie in 2 … 10, got 11"):
        run(
            tmp_path / "run",
            small(
                {"samples.classes": 11},
            ),
        )
    with pytest.raises(ValueError, match="freeze: no parameter is called 'nothing'"):
        run(tmp_path / "run", small(freeze=("nothing",)))
    assert not (tmp_path / "run").exists()


def test_runs_outside_the_main_thread(tmp_path: pathlib.Path) -> None:
    results: list[dict[str, float]] = []
    thread = threading.Thread(target=lambda: results.append(run(tmp_path, small(steps=2))))
    thread.start()
    thread.join()
    assert results[0]["accuracy"] >= 0


def test_the_training_set_can_be_measured(tmp_path: pathlib.Path) -> None:
    task = Classification(call(models.mlp, in_features=64, num_classes=None, width=0.1), call(Softmax), Flat())
    Trainer(task, tmp_path, FEW).run()
    assert "| measured samples | the training samples |" in (tmp_path / "README.md").read_text()
    assert "There is no embedder: inputs of shape" in (tmp_path / "README.md").read_text()


class Flat:
    """Digits with flattened pixels."""

    def __init__(self) -> None:
        self.digits = Digits()

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.digits[index][0].flatten() / 255, self.digits[index][1]


def test_a_callback_may_listen_to_nothing():
    callback = Callback()
    for method in (callback.on_start, callback.on_step):
        method(None)
    for method in (callback.on_log, callback.on_evaluate, callback.on_end):
        method(None, {})
    assert callback.state_dict() == {}
    callback.load_state_dict({})
