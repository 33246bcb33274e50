"""The demo: four heads on the digits with three-dimensional features, one table, and the pictures that explain it."""

import dataclasses
import json
import math
import os
import pathlib
import time
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from .. import plots
from .._extras import require
from ..data import Digits
from ..energy import hyperspherical_energy
from ..evaluation import angular_fisher_score, class_angles
from ..models import Conv, ConvNet, Pool
from ..objectives import Annealing, ArcFace, CosFace, MarginSoftmax, Softmax, SphereFace

HEADS: dict[str, Callable[[], MarginSoftmax]] = {
    "softmax": lambda: Softmax(3, 10),
    "SphereFace": lambda: SphereFace(3, 10, m=4, annealing=Annealing(start=100, floor=0.5, rate=0.1)),
    "CosFace": lambda: CosFace(3, 10, m=0.4, scale=12.0),
    "ArcFace": lambda: ArcFace(3, 10, m=0.5, scale=12.0),
}
COLUMNS = {
    "accuracy": "test %",
    "intra": "intra-class °",
    "inter": "nearest centres °",
    "fisher": "Fisher score",
    "seconds": "train s",
}


@dataclasses.dataclass
class Result:
    """One trained head: where its features lie, how well it does, how it got there."""

    name: str
    network: nn.Module
    head: MarginSoftmax
    features: Float[Tensor, "n d"]
    row: dict[str, float]
    history: dict[str, list[float]]


def run(
    output: str | os.PathLike[str] = "runs/demo",
    *,
    epochs: int = 40,
    seed: int = 0,
    progress: Callable[[str, int], None] | None = None,
) -> list[Result]:
    """Train every head and write models, ``metrics.json`` and pictures to ``output``; ``progress(head, epoch)`` is called as it goes.

    The test digits are used for measuring only; the margins are fixed above.
    """
    if epochs < 1:
        raise ValueError(f"epochs must be an integer ≥ 1, got {epochs}")
    folder = pathlib.Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    train, test = _images(Digits(train=True)), _images(Digits(train=False))
    results = [_train(name, head, train, test, epochs, seed, progress) for name, head in HEADS.items()]
    for result in results:
        state = {
            f"{part}.{key}": value
            for part in ("network", "head")
            for key, value in getattr(result, part).state_dict().items()
        }
        require("safetensors.torch").save_file(state, folder / f"{result.name.lower()}.safetensors")
    (folder / "metrics.json").write_text(json.dumps({r.name: r.row for r in results}, indent=1) + "\n")
    _pictures(results, test[1], folder)
    return results


def _images(digits: Digits) -> tuple[Tensor, Tensor]:
    return digits.data.float() / 255 - 0.3, digits.labels


def _train(
    name: str,
    make: Callable[[], MarginSoftmax],
    train: tuple[Tensor, Tensor],
    test: tuple[Tensor, Tensor],
    epochs: int,
    seed: int,
    progress: Callable[[str, int], None] | None,
) -> Result:
    torch.manual_seed(seed)
    network, head = (
        ConvNet([Conv(24), Conv(32), Pool(), Conv(64)], None, in_channels=1, input_size=8, fc=[64, 3]),
        make(),
    )
    parameters = [*network.parameters(), *head.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=6e-3)
    images, labels = train
    batches = len(images) // 64
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 6e-3, total_steps=epochs * batches)
    history: dict[str, list[float]] = {"accuracy": [], "energy": []}
    seconds = 0.0
    for epoch in range(epochs):
        start = time.perf_counter()
        for batch in torch.randperm(len(images))[: 64 * batches].split(64):
            optimizer.zero_grad()
            head(network(images[batch]), labels[batch]).backward()
            optimizer.step()
            schedule.step()
            head.step()
        seconds += time.perf_counter() - start
        features, accuracy = _evaluate(network, head, *test)
        history["accuracy"].append(accuracy)
        history["energy"].append(hyperspherical_energy(head.weight.detach()).item())
        if progress is not None:
            progress(name, epoch)
    angles = class_angles(features, test[1])
    row = {
        "accuracy": 100 * accuracy,
        "intra": math.degrees(angles.intra),
        "inter": math.degrees(angles.nearest),
        "fisher": float(angular_fisher_score(features, test[1])),
        "seconds": seconds,
    }
    return Result(name, network, head, features, row, history)


@torch.no_grad()
def _evaluate(
    network: nn.Module, head: MarginSoftmax, images: Tensor, labels: Int[Tensor, " n"]
) -> tuple[Tensor, float]:
    network.eval()
    features = network(images)
    network.train()
    return features, (head.predict(features) == labels).float().mean().item()


def _pictures(results: list[Result], labels: Tensor, folder: pathlib.Path) -> None:
    """Features on the sphere, angles of pairs, and what happened over training; drawn without a display."""
    figures = require("matplotlib.figure")

    def sheet(columns: int, height: float, **kwargs: Any) -> tuple[Any, Any]:
        figure = figures.Figure(figsize=(4 * columns, height), layout="constrained")
        return figure, [figure.add_subplot(1, columns, i + 1, **kwargs) for i in range(columns)]

    figure, axes = sheet(len(results), 4.2, projection="3d")
    for ax, result in zip(axes, results, strict=True):
        plots.plot_features(result.features, labels, centers=result.head.weight, title=result.name, ax=ax)
    figure.savefig(folder / "features.png", dpi=120)
    figure, axes = sheet(len(results), 3.2)
    for ax, result in zip(axes, results, strict=True):
        plots.plot_angle_histogram(result.features, labels, title=result.name, ax=ax)
    figure.savefig(folder / "angles.png", dpi=120)
    figure, axes = sheet(2, 3.4)
    epochs = range(1, len(results[0].history["accuracy"]) + 1)
    for ax, key, label in zip(
        axes, ("accuracy", "energy"), ("test accuracy", "energy of the class weights"), strict=True
    ):
        plots.plot_dynamics(epochs, {r.name: r.history[key] for r in results}, xlabel="epoch", ylabel=label, ax=ax)
    figure.savefig(folder / "training.png", dpi=120)
