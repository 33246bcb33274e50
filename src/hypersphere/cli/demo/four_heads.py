"""Train four heads on handwritten digits with three-dimensional features; write a table and pictures."""

import dataclasses
import math
import os
import pathlib
import time
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ... import plots
from ..._extras import require
from ...config import call
from ...data import Digits, PicturePreprocessing
from ...evaluation.evidence import FILE as EVIDENCE
from ...files import write_json
from ...models import Conv, ConvNet, Pool
from ...objectives import Annealing, ArcFace, CosFace, MarginSoftmax, Softmax, SphereFace
from ...training import Callback, Classification, CosineRate, Settings, Trainer, read_log
from ...training.run_folder import RunFolder

BATCH_SIZE = 64
EPOCHS_PER_MEASUREMENT = 2
HEADS: dict[str, Callable[[], MarginSoftmax]] = {
    "softmax": lambda: Softmax(3, 10),
    "SphereFace": lambda: SphereFace(3, 10, m=4, annealing=Annealing(start=100, floor=0.5, rate=0.1)),
    "CosFace": lambda: CosFace(3, 10, m=0.4, scale=12.0),
    "ArcFace": lambda: ArcFace(3, 10, m=0.5, scale=12.0),
}
COLUMNS = {
    "accuracy": "test %",
    "intra": "intra-class °",
    "inter": "nearest centers °",
    "fisher": "Fisher score",
    "seconds": "train s",
}


@dataclasses.dataclass
class HeadResult:
    """One trained head: its run, the features of the test digits, the final metrics, and the metrics over time."""

    name: str
    folder: pathlib.Path
    network: nn.Module
    head: MarginSoftmax
    features: Float[Tensor, "n d"]
    row: dict[str, float]
    history: dict[str, list[float]]


def train_heads(
    output: str | os.PathLike[str],
    *,
    epochs: int = 20,
    seed: int = 0,
    progress: Callable[[str, int], None] | None = None,
) -> list[HeadResult]:
    """Train every head on four fifths of the digits; write one run per head, ``metrics.json`` and pictures.

    The other fifth is used for testing only. The margins are fixed in ``HEADS``.

    Args:
        output: The output folder, created if missing.
        epochs: Passes over the training digits per head.
        seed: Random seed of the initial weights and of the order of the digits.
        progress: Called with the name of a head and the number of finished epochs.

    Returns:
        The heads in the order of ``HEADS``.

    Raises:
        ValueError: If ``epochs`` is less than 1.
    """
    if epochs < 1:
        raise ValueError(f"epochs must be an integer ≥ 1, got {epochs}")
    folder = pathlib.Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    results = [_train_head(name, folder / name.lower(), epochs, seed, progress) for name in HEADS]
    write_json(folder / "metrics.json", {result.name: result.row for result in results})
    _draw_pictures(results, Digits(train=False).labels, folder)
    return results


def _train_head(
    name: str, folder: pathlib.Path, epochs: int, seed: int, progress: Callable[[str, int], None] | None
) -> HeadResult:
    torch.manual_seed(seed)
    train, test = Digits(train=True), Digits(train=False)
    network = ConvNet([Conv(16), Conv(32), Pool(), Conv(48)], None, in_channels=1, input_size=8, fc=[64, 3])
    preprocessing = PicturePreprocessing(size=(8, 8), channels=1, mean=0.3, std=1.0)
    task = Classification(
        network, HEADS[name](), train, test, preprocessing=preprocessing, batch_size=BATCH_SIZE, seed=seed
    )
    epoch_steps = len(train) // BATCH_SIZE
    steps = epochs * epoch_steps
    settings = Settings(
        steps=steps,
        seed=seed,
        evaluate_every=EPOCHS_PER_MEASUREMENT * epoch_steps,
        log_every=epoch_steps,
        checkpoint_every=steps,
        threads=1,
        pictures=False,
        optimizer=call(torch.optim.Adam, lr=6e-3),
        schedule=call(CosineRate, warmup=int(0.3 * steps)),
    )
    start = time.perf_counter()
    metrics = Trainer(task, folder, settings, callbacks=[_EpochReporter(name, epoch_steps, progress)], fresh=True).run()
    seconds = time.perf_counter() - start
    with torch.no_grad():
        features = task.embed(test)
    evidence = task.evidence()
    assert evidence is not None
    RunFolder(folder).record(EVIDENCE)
    evidence.save(folder / EVIDENCE)  # for heads.html
    rows = [row for row in read_log(folder) if "accuracy" in row][1:]  # the first row describes the initial weights
    history = {
        "epoch": [row["step"] / epoch_steps for row in rows],
        "accuracy": [row["accuracy"] / 100 for row in rows],
        "energy": [row["energy/classifier"] for row in rows],
    }
    row = {
        "accuracy": metrics["accuracy"],
        "intra": math.degrees(metrics["intra_angle"]),
        "inter": math.degrees(metrics["nearest_angle"]),
        "fisher": metrics["angular_fisher"],
        "seconds": seconds,
    }
    return HeadResult(name, folder, network, task.model.classifier, features, row, history)


class _EpochReporter(Callback):
    """A callback that reports the number of finished epochs."""

    def __init__(self, name: str, epoch_steps: int, progress: Callable[[str, int], None] | None):
        self.name, self.epoch_steps, self.progress = name, epoch_steps, progress

    def on_step(self, trainer: Trainer) -> None:
        """Report an epoch after its last step."""
        if self.progress is not None and trainer.step % self.epoch_steps == 0:
            self.progress(self.name, trainer.step // self.epoch_steps)


def _draw_pictures(results: list[HeadResult], labels: Tensor, folder: pathlib.Path) -> None:
    """Draw the features on the sphere, the angles of pairs, and accuracy and energy over time, without a display."""
    figures = require("matplotlib.figure")

    def sheet(columns: int, height: float, **kwargs: Any) -> tuple[Any, Any]:
        figure = figures.Figure(figsize=(4 * columns, height), layout="constrained")
        return figure, [figure.add_subplot(1, columns, i + 1, **kwargs) for i in range(columns)]

    figure = figures.Figure(figsize=(3.6 * len(results), 7.2), layout="constrained")
    for column, result in enumerate(results):
        front_view: tuple[float, float] | None = None
        for row, suffix in enumerate(("", ", from behind")):
            ax = figure.add_subplot(2, len(results), 1 + column + row * len(results), projection="3d")
            view = None if front_view is None else (-front_view[0], front_view[1] + 180)
            title = f"{result.name}{suffix}"
            plots.plot_features(result.features, labels, centers=result.head.weight, title=title, view=view, ax=ax)
            front_view = (ax.elev, ax.azim)
    figure.savefig(folder / "features.png", dpi=100)
    figure, axes = sheet(len(results), 3.2)
    for ax, result in zip(axes, results, strict=True):
        plots.plot_angle_histogram(result.features, labels, title=result.name, ax=ax)
    figure.savefig(folder / "angles.png", dpi=120)
    figure, axes = sheet(2, 3.4)
    epochs = results[0].history["epoch"]
    for ax, key, label in zip(
        axes, ("accuracy", "energy"), ("test accuracy", "energy of the class weights"), strict=True
    ):
        plots.plot_dynamics(epochs, {r.name: r.history[key] for r in results}, xlabel="epoch", ylabel=label, ax=ax)
    figure.savefig(folder / "training.png", dpi=120)
