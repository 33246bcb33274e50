"""DeepFool: the smallest perturbation that crosses a decision boundary, by repeated linearization (C.3)."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ..models.network import evaluation_mode
from .attacks import Bounds, check_images


def deepfool(
    model: nn.Module,
    images: Float[Tensor, "n ..."],
    labels: Int[Tensor, "n"] | None = None,
    *,
    norm: float = 2,
    steps: int = 50,
    candidates: int = 10,
    overshoot: float = 0.02,
    bounds: Bounds = (0.0, 1.0),
) -> Float[Tensor, "n ..."]:
    r"""Return images moved just beyond the nearest boundary in ℓ₂ (``norm=2``) or ℓ∞ (``norm=math.inf``).

    Each step moves to the nearest boundary of the linearized differences f_k − f_0 of the ``candidates`` highest logits,
    at the distance |f_k − f_0| / ‖∇(f_k − f_0)‖_q, with q the dual norm. :func:`strength` measures the result.

    Args:
        model: Network that returns logits.
        images: Images within ``bounds``.
        labels: True classes, by default the predictions. Misclassified images are returned unchanged.
        norm: 2 or ``math.inf``.
        steps: Maximum number of steps.
        candidates: Number of classes with the highest logits to consider.
        overshoot: The sum of all steps is multiplied by 1 + ``overshoot``.
        bounds: Smallest and largest pixel value, to which the result is clipped.

    >>> model = torch.nn.Linear(2, 2, bias=False)
    >>> model.weight.data = torch.eye(2)
    >>> deepfool(model, torch.tensor([[0.6, 0.4]]), overshoot=0.1)
    tensor([[0.4899, 0.5101]])
    """
    check_images(images, 1.0, bounds)
    if norm not in (2, math.inf):
        raise ValueError(f"norm must be 2 or math.inf, got {norm!r}")
    if candidates < 2 or steps < 1 or overshoot < 0:
        raise ValueError(
            f"candidates must be ≥ 2, steps ≥ 1, overshoot ≥ 0, got {candidates!r}, {steps!r}, {overshoot!r}"
        )
    images = images.detach()
    x, total = images.clone(), torch.zeros_like(images)
    with evaluation_mode(model):
        with torch.no_grad():
            order = model(images).argsort(dim=1, descending=True)[:, :candidates]
        labels = order[:, 0] if labels is None else labels
        active = torch.arange(len(images), device=images.device)
        for _ in range(steps):
            logits, differences, gradients = _linearize(model, x[active], order[active])
            keep = logits.argmax(1) == labels[active]
            active, differences, gradients = active[keep], differences[keep], gradients[keep]
            if not len(active):
                break
            total[active] += _compute_step(differences, gradients, norm)
            x[active] = (images[active] + (1 + overshoot) * total[active]).clamp(*bounds)
    return x


def strength(
    adversarial: Float[Tensor, "n ..."], images: Float[Tensor, "n ..."], norm: float = 2
) -> Float[Tensor, "n"]:
    """Return ‖x̃ − x‖ of each image in ℓ₂ or ℓ∞ (``norm=math.inf``), as in fig. C.1.

    >>> moved, still = torch.tensor([[3.0, 4.0]]), torch.zeros(1, 2)
    >>> strength(moved, still), strength(moved, still, math.inf)
    (tensor([5.]), tensor([4.]))
    """
    return torch.linalg.vector_norm((adversarial - images).flatten(1), norm, dim=1)


def _linearize(model: nn.Module, x: Tensor, order: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return logits, the differences f_k − f_0 for the other candidates k, and their gradients ``(n, candidates − 1, …)``."""
    with torch.enable_grad():
        x = x.requires_grad_(True)
        logits = model(x)
        differences = logits.gather(1, order[:, 1:]) - logits.gather(1, order[:, :1])
        gradients = [torch.autograd.grad(column.sum(), x, retain_graph=True)[0] for column in differences.unbind(1)]
    return logits.detach(), differences.detach(), torch.stack(gradients, 1)


def _compute_step(differences: Tensor, gradients: Tensor, norm: float) -> Tensor:
    """Return the step to the nearest linearized boundary, 1e-4 longer as published, so that rounding cannot stop progress."""
    flat = gradients.flatten(2)
    dual = torch.linalg.vector_norm(flat, 2 if norm == 2 else 1, dim=2) + 1e-8
    distance, best = (differences.abs() / dual).min(1)
    rows = torch.arange(len(best), device=best.device)
    direction = flat[rows, best] / dual[rows, best, None] if norm == 2 else flat[rows, best].sign()
    return ((distance + 1e-4)[:, None] * direction).view_as(gradients[:, 0])
