"""Robustness of a classifier to attacks, with checks for masked gradients."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
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
    predictions,
    random_noise,
)
from .figures import Figure, Report
from .intervals import Measurement, wilson

TOLERANCE = 0.02  # differences of accuracy below this are noise


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

    Bounded operators can leave a gradient attack without a usable gradient while the decision itself is easy to move;
    a high accuracy then says nothing. So the report also has random noise, the iterative attack in a ball as wide as
    the bounds allow (which must succeed), attacks transferred from ``baseline`` — a plain network of the same
    architecture (C.1.3) — and, with ``decision_steps``, an attack of foolbox that sees decisions only.
    What looks like masking is named in ``findings``.

    Args:
        model: Gives logits of images.
        images: Images within ``bounds``, at least one.
        labels: Their classes.
        baseline: A plain network whose attacks are transferred to the model; None leaves these out.
        epsilon: Radius of the ℓ∞ ball; the default is that of Liu (2020), C.1.2, as are the next two.
        step: Length of a step of the iterative attacks.
        iterations: How many steps they take.
        bounds: The least and the largest value of a pixel.
        batch: How many images are attacked at a time.
        deepfool_steps: The most steps that DeepFool takes.
        decision_steps: Steps of the attack that sees decisions only; 0 leaves it out, more need foolbox.
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
    wide = bounds[1] - bounds[0]
    options: dict[str, Any] = {"bounds": bounds}
    parts: list[dict[str, Tensor]] = []
    for i, (x, y) in enumerate(zip(images.split(batch), labels.split(batch), strict=True)):
        made = {
            "clean": x,
            "noise": random_noise(x, epsilon, seed=seed + i, **options),
            "FGSM": fgsm(model, x, y, epsilon, **options),
            "BIM": bim(model, x, y, epsilon, step, iterations, **options),
            "PGD": pgd(model, x, y, epsilon, step, iterations, seed=seed + i, **options),
            "BIM, wide ball": bim(model, x, y, wide, wide / 10, iterations, **options),
        }
        if baseline is not None:
            made["transferred FGSM"] = fgsm(baseline, x, y, epsilon, **options)
            made["transferred BIM"] = bim(baseline, x, y, epsilon, step, iterations, **options)
        if decision_steps:
            made["decision-based"] = boundary_attack(
                model, x, y, epsilon, steps=decision_steps, bounds=bounds, seed=seed
            )
        part = {name: predictions(model, adversarial) == y for name, adversarial in made.items()}
        part["no gradient"] = _without_gradient(model, x, y)
        for name, p in (("DeepFool ℓ2", 2.0), ("DeepFool ℓ∞", math.inf)):
            part[name] = strength(deepfool(model, x, y, norm=p, steps=deepfool_steps, bounds=bounds), x, p)
        parts.append(part)
    joined = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    strengths = {name: joined.pop(name)[joined["clean"]] for name in ("DeepFool ℓ2", "DeepFool ℓ∞")}
    no_gradient = joined.pop("no gradient").double().mean().item()
    return RobustnessReport(
        {name: right.double().mean().item() for name, right in joined.items()}, strengths, no_gradient, len(images)
    )


@dataclass(frozen=True, repr=False)
class RobustnessReport(Report):
    """Accuracy under each attack, DeepFool strengths of images answered right, the share without a usable gradient.

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
        return [text for text, found in checks.items() if found]

    def figures(self) -> list[Figure]:
        """Return accuracies, median DeepFool strengths, the share without gradient, and the findings as one text."""
        rates = {**self.accuracy, "no gradient": self.no_gradient}
        figures = [Figure.of(name, self._rate(rate), count=self.images) for name, rate in rates.items()]
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
        """Draw the accuracy under every attack with its 95 % interval."""
        intervals = {name: self._rate(rate).interval for name, rate in self.accuracy.items()}
        return plots.plot_bars(
            self.accuracy, intervals=intervals, xlabel="accuracy", limits=(0, 1), title=self.title, ax=ax
        )

    def _rate(self, rate: float) -> Measurement:
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
        source: The network that is attacked.
        target: The network that is measured.
        images: Images within the attack's bounds.
        labels: Their classes.
        attack: A function such as :func:`fgsm`, :func:`bim` or :func:`pgd`.
        options: What else the attack takes, such as ``epsilon``.

    >>> source, target = torch.nn.Linear(2, 2, bias=False), torch.nn.Linear(2, 2, bias=False)
    >>> source.weight.data, target.weight.data = torch.eye(2), 2 * torch.eye(2)
    >>> images, labels = torch.tensor([[0.9, 0.1], [0.52, 0.5]]), torch.tensor([0, 0])
    >>> transfer(source, target, images, labels, fgsm, epsilon=0.1)
    0.5
    """
    return (predictions(target, attack(source, images, labels, **options)) == labels).double().mean().item()


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
    """Attack by HopSkipJump of foolbox in ℓ∞, which needs decisions only; images that it cannot fool within ``epsilon`` stay clean.

    Needs foolbox: ``pip install 'torch-hypersphere[attacks]'``. Each of ``steps`` costs some hundred
    evaluations of the model.
    """
    foolbox = require("foolbox", "attacks")
    with evaluation_mode(model), torch.random.fork_rng():
        torch.manual_seed(seed)
        attack = foolbox.attacks.HopSkipJumpAttack(steps=steps, constraint="linf")
        wrapped = foolbox.PyTorchModel(model, bounds=bounds, device=images.device)
        _, made, fooled = attack(wrapped, images, labels, epsilons=[epsilon])
    return torch.where(fooled[0].view(-1, *[1] * (images.ndim - 1)), made[0], images)


def _without_gradient(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    with evaluation_mode(model):
        gradient = input_gradient(model, x, y).flatten(1)
    return (gradient == 0).all(1) | ~gradient.isfinite().all(1)
