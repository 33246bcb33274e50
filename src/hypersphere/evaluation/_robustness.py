"""Robustness of a classifier to attacks, with checks for masked gradients."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from .. import plots
from .._extras import require
from ..models.network import evaluation_mode
from ._deepfool import deepfool, strength
from .attacks import (
    EPSILON,
    ITERATIONS,
    STEP,
    Bounds,
    bim,
    fgsm,
    input_gradient,
    pgd,
    predict_classes,
    random_noise,
)
from .figures import Figure, Report
from .intervals import Measurement, wilson

TOLERANCE = 0.02  # smaller differences of accuracy are treated as noise


def robustness(
    model: nn.Module,
    images: Float[Tensor, "n ..."],
    labels: Int[Tensor, "n"],
    *,
    baseline: nn.Module | None = None,
    epsilon: float = EPSILON,
    step: float = STEP,
    iterations: int = ITERATIONS,
    bounds: Bounds = (0.0, 1.0),
    batch: int = 128,
    deepfool_steps: int = 50,
    decision_steps: int = 0,
    seed: int = 0,
) -> "RobustnessReport":
    """Measure accuracy under FGSM, BIM and PGD (C.1.2) and DeepFool strengths (C.3), and check for masked gradients.

    Bounded operators can mask the gradient: a gradient attack then fails although other attacks would change the decision
    easily, and a high accuracy is meaningless. The report therefore adds random noise, the iterative attack without a limit
    other than ``bounds`` (which must succeed), attacks transferred from ``baseline``, a plain network of the same
    architecture (C.1.3), and, with ``decision_steps``, an attack from foolbox that uses decisions only. ``findings``
    lists all signs of masking.

    Args:
        model: Network that returns logits for images.
        images: Images within ``bounds``, at least one.
        labels: Their classes.
        baseline: Plain network whose attacks are transferred to the model; None skips these attacks.
        epsilon: Radius of the ℓ∞ ball; the default, like the next two, is that of Liu (2020), C.1.2.
        step: Step size of the iterative attacks.
        iterations: Number of steps of the iterative attacks.
        bounds: Smallest and largest pixel value.
        batch: Number of images attacked at a time.
        deepfool_steps: Maximum number of DeepFool steps.
        decision_steps: Steps of the attack that uses decisions only; 0 skips it, other values need foolbox.
        seed: Seed of the random starts and of the noise.

    Raises:
        ValueError: If there is no image, labels do not fit, or images lie outside their bounds.

    >>> model = torch.nn.Linear(2, 2, bias=False)
    >>> model.weight.data = torch.eye(2)
    >>> images, labels = torch.tensor([[0.9, 0.1], [0.52, 0.5]]), torch.tensor([0, 0])
    >>> report = robustness(model, images, labels, epsilon=0.1, step=0.05, iterations=4)
    >>> report.accuracy["clean"], report.accuracy["PGD"], report.findings
    (1.0, 0.5, [])
    """
    if labels.shape != images.shape[:1] or not len(images):
        raise ValueError(f"labels must have shape ({len(images)},) with at least one image, got {tuple(labels.shape)}")
    width = bounds[1] - bounds[0]
    options: dict[str, Any] = {"bounds": bounds}
    batches: list[dict[str, Tensor]] = []
    for i, (x, y) in enumerate(zip(images.split(batch), labels.split(batch), strict=True)):
        attacked = {
            "clean": x,
            "noise": random_noise(x, epsilon, seed=seed + i, **options),
            "FGSM": fgsm(model, x, y, epsilon, **options),
            "BIM": bim(model, x, y, epsilon, step, iterations, **options),
            "PGD": pgd(model, x, y, epsilon, step, iterations, seed=seed + i, **options),
            "BIM, wide ball": bim(model, x, y, width, width / 10, iterations, **options),
        }
        if baseline is not None:
            attacked["transferred FGSM"] = fgsm(baseline, x, y, epsilon, **options)
            attacked["transferred BIM"] = bim(baseline, x, y, epsilon, step, iterations, **options)
        if decision_steps:
            attacked["decision-based"] = boundary_attack(
                model, x, y, epsilon, steps=decision_steps, bounds=bounds, seed=seed
            )
        result = {name: predict_classes(model, adversarial) == y for name, adversarial in attacked.items()}
        result["no gradient"] = _find_missing_gradients(model, x, y)
        for name, p in (("DeepFool ℓ2", 2.0), ("DeepFool ℓ∞", math.inf)):
            result[name] = strength(deepfool(model, x, y, norm=p, steps=deepfool_steps, bounds=bounds), x, p)
        batches.append(result)
    joined = {name: torch.cat([result[name] for result in batches]) for name in batches[0]}
    strengths = {name: joined.pop(name)[joined["clean"]] for name in ("DeepFool ℓ2", "DeepFool ℓ∞")}
    no_gradient = joined.pop("no gradient").double().mean().item()
    return RobustnessReport(
        {name: right.double().mean().item() for name, right in joined.items()}, strengths, no_gradient, len(images)
    )


@dataclass(frozen=True, repr=False)
class RobustnessReport(Report):
    """Accuracy under each attack, DeepFool strengths of correctly classified images, share of images without a usable gradient.

    >>> strengths = {"DeepFool ℓ2": torch.tensor([0.1, 0.3])}
    >>> accuracy = {"clean": 1.0, "noise": 1.0, "FGSM": 0.2, "BIM": 0.5, "PGD": 0.5, "BIM, wide ball": 0.0}
    >>> RobustnessReport(accuracy, strengths, no_gradient=0.0, images=100).findings
    ['one step (FGSM) is stronger than many (BIM, PGD)']
    """

    accuracy: dict[str, float]
    strengths: dict[str, Float[Tensor, "n"]]
    no_gradient: float
    images: int
    title = "robustness"

    @property
    def findings(self) -> list[str]:
        """Signs of masked gradients, as sentences; empty if there are none."""
        a = self.accuracy
        white = min(a["FGSM"], a["BIM"], a["PGD"])
        checks = {
            f"{self.no_gradient:.1%} of the images have a zero or non-finite gradient": self.no_gradient > TOLERANCE,
            "random noise is as strong as a gradient attack": a["noise"] < a["clean"] - TOLERANCE
            and a["noise"] <= white + TOLERANCE,
            "one step (FGSM) is stronger than many (BIM, PGD)": a["FGSM"] < min(a["BIM"], a["PGD"]) - TOLERANCE,
            "the iterative attack fails even without a bound on the perturbation": a["BIM, wide ball"] > TOLERANCE,
        }
        for name in ("transferred FGSM", "transferred BIM", "decision-based"):
            if name in a:
                checks[f"{name} is stronger than every attack with the model's own gradient"] = (
                    a[name] < white - TOLERANCE
                )
        return [text for text, is_sign in checks.items() if is_sign]

    def figures(self) -> list[Figure]:
        """Return accuracies, median DeepFool strengths, the share of images without a gradient, and the findings as text."""
        rates = {**self.accuracy, "no gradient": self.no_gradient}
        figures = [Figure.of(name, self._add_interval(rate), count=self.images) for name, rate in rates.items()]
        figures += [
            Figure(f"median {name}", s.double().median().item(), "pixel units", count=len(s))
            for name, s in self.strengths.items()
        ]
        return [
            Figure("images", self.images, "images"),
            *figures,
            Figure("masked gradients", "; ".join(self.findings) or "no sign"),
        ]

    def plot(self, ax: Any = None) -> tuple[Any, Any]:
        """Draw the accuracy under each attack with its 95 % interval."""
        intervals = {name: self._add_interval(rate).interval for name, rate in self.accuracy.items()}
        return plots.plot_bars(
            self.accuracy, intervals=intervals, xlabel="accuracy", limits=(0, 1), title=self.title, ax=ax
        )

    def _add_interval(self, rate: float) -> Measurement:
        return wilson(round(rate * self.images), self.images)


def transfer(
    source: nn.Module,
    target: nn.Module,
    images: Float[Tensor, "n ..."],
    labels: Int[Tensor, "n"],
    attack: Any = bim,
    **options: Any,
) -> float:
    """Measure the black-box accuracy of ``target`` on images attacked with the gradient of ``source`` (C.1.3, table 4.8).

    Args:
        source: Network whose gradient the attack uses.
        target: Network whose accuracy is measured.
        images: Images within the bounds of the attack.
        labels: Their classes.
        attack: Attack function: :func:`fgsm`, :func:`bim`, :func:`pgd` or another one with their arguments.
        options: Further arguments of the attack, for example ``epsilon``.

    >>> source, target = torch.nn.Linear(2, 2, bias=False), torch.nn.Linear(2, 2, bias=False)
    >>> source.weight.data, target.weight.data = torch.eye(2), 2 * torch.eye(2)
    >>> images, labels = torch.tensor([[0.9, 0.1], [0.52, 0.5]]), torch.tensor([0, 0])
    >>> transfer(source, target, images, labels, fgsm, epsilon=0.1)
    0.5
    """
    return (predict_classes(target, attack(source, images, labels, **options)) == labels).double().mean().item()


def boundary_attack(
    model: nn.Module,
    images: Float[Tensor, "n ..."],
    labels: Int[Tensor, "n"],
    epsilon: float = EPSILON,
    *,
    steps: int = 20,
    bounds: Bounds = (0.0, 1.0),
    seed: int = 0,
) -> Float[Tensor, "n ..."]:
    """Attack with foolbox's HopSkipJump in ℓ∞, which uses decisions only.

    Images for which it finds no adversarial image within ``epsilon`` are returned unchanged. Needs foolbox:
    ``pip install 'torch-hypersphere[attacks]'``. Each of ``steps`` needs a few hundred evaluations of the model.
    """
    foolbox = require("foolbox", "attacks")
    with evaluation_mode(model), torch.random.fork_rng():
        torch.manual_seed(seed)
        attack = foolbox.attacks.HopSkipJumpAttack(steps=steps, constraint="linf")
        wrapped = foolbox.PyTorchModel(model, bounds=bounds, device=images.device)
        _, adversarial, fooled = attack(wrapped, images, labels, epsilons=[epsilon])
    return torch.where(fooled[0].view(-1, *[1] * (images.ndim - 1)), adversarial[0], images)


def _find_missing_gradients(model: nn.Module, x: Tensor, y: Tensor) -> Bool[Tensor, "n"]:
    """Return which images have a gradient that is zero or not finite."""
    with evaluation_mode(model):
        gradient = input_gradient(model, x, y).flatten(1)
    return (gradient == 0).all(1) | ~gradient.isfinite().all(1)
