"""The Muon optimizer (Jordan et al., 2024) for matrices and convolutions."""

import math
from collections.abc import Callable, Iterable
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from .maps.polar_coefficients import polar_coefficients
from .matrix_optimizer import MatrixOptimizer, as_matrices, as_weight

JORDAN_COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # the authors' values: singular values converge fast, but to [0.7, 1.2]
# The coefficients of all steps per iteration name.
ITERATIONS: dict[str, Callable[[int], tuple[tuple[float, ...], ...]]] = {
    "jordan": lambda steps: (JORDAN_COEFFICIENTS,) * steps,
    "polar_express": polar_coefficients,
}


class Muon(MatrixOptimizer):
    r"""W ← (1 − λη)W − η·c·O, where O ≈ UVᵀ for the momentum UΣVᵀ (Jordan et al., 2024).

    Does the same as ``torch.optim.Muon`` and also supports convolutions, grouped convolutions and fused projections,
    which are treated as one or several matrices. Pass it the matrices of :func:`group_matrices` and the other parameters
    to AdamW. A run resumed from the ``state_dict`` continues bit for bit.

    Args:
        params: Weights with two or more dimensions, or parameter groups of them.
        lr: Learning rate η.
        weight_decay: Weight decay λ, decoupled from the gradient.
        momentum: Decay rate of the exponential moving average of the gradients.
        nesterov: Whether to use Nesterov momentum.
        steps: Number of steps of the quintic iteration.
        iteration: ``"jordan"`` repeats one step with the authors' coefficients. ``"polar_express"`` uses the optimal
            coefficients for each step (arXiv:2505.16932) and approximates UVᵀ better with the same number of products.
        adjust: Factor c for a matrix with A neurons of dimension B. ``"original"`` is √max(1, A/B). ``"match_rms_adamw"``
            is 0.2·√max(A, B), which allows learning rates tuned for AdamW.
        half: Whether to iterate in bfloat16, as torch does, instead of float32.
        eps: Lower bound of the norm in the denominator.

    >>> layer = torch.nn.Conv2d(3, 8, 3, bias=False)
    >>> optimizer = Muon(layer.parameters(), lr=0.02)
    >>> layer(torch.ones(1, 3, 3, 3)).sum().backward()
    >>> optimizer.step()
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        *,
        nesterov: bool = True,
        steps: int = 5,
        iteration: Literal["jordan", "polar_express"] = "jordan",
        adjust: Literal["original", "match_rms_adamw"] = "original",
        half: bool = False,
        eps: float = 1e-7,
    ):
        if iteration not in ITERATIONS:
            raise ValueError(f"iteration must be one of {', '.join(ITERATIONS)}, got {iteration!r}")
        if adjust not in ("original", "match_rms_adamw"):
            raise ValueError(f"adjust must be original or match_rms_adamw, got {adjust!r}")
        if steps < 1:
            raise ValueError(f"steps must be an integer ≥ 1, got {steps!r}")
        options = {"lr": lr, "weight_decay": weight_decay, "momentum": momentum, "nesterov": nesterov, "steps": steps}
        super().__init__(params, {**options, "iteration": iteration, "adjust": adjust, "half": half, "eps": eps})

    def _update(self, p: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        matrices = as_matrices(self._momentum(p, gradient, group), group)
        options = {key: group[key] for key in ("iteration", "half", "eps")}
        direction = orthogonalize(matrices, group["steps"], **options)
        a, b = matrices.shape[-2:]
        factor = math.sqrt(max(1, a / b)) if group["adjust"] == "original" else 0.2 * math.sqrt(max(a, b))
        p.mul_(1 - group["lr"] * group["weight_decay"])
        p.add_(as_weight(direction, p, group), alpha=-group["lr"] * factor)


def orthogonalize(
    x: Float[Tensor, "*batch m n"],
    steps: int = 5,
    *,
    iteration: Literal["jordan", "polar_express"] = "jordan",
    half: bool = False,
    eps: float = 1e-7,
) -> Float[Tensor, "*batch m n"]:
    """Approximate UVᵀ for x = UΣVᵀ by steps X ← aX + (bG + cG²)X with G = XXᵀ, starting from X/‖X‖.

    Args:
        x: Matrices.
        steps: Number of steps, each with three matrix products.
        iteration: ``"jordan"`` uses (3.4445, −4.7750, 2.0315) of Jordan et al. (2024) in every step; the singular values
            end in [0.7, 1.2]. ``"polar_express"`` uses :func:`polar_coefficients`, whose error decreases with every step.
        half: Whether to compute in bfloat16.
        eps: Lower bound of the norm in the denominator.

    Returns:
        Matrices with the shape and dtype of ``x``.

    >>> orthogonalize(torch.diag(torch.tensor([5.0, 1.0]))).diagonal().round(decimals=1)
    tensor([0.7000, 0.8000])
    """
    coefficients = ITERATIONS[iteration](steps)
    wide = (x.bfloat16() if half else x).reshape(-1, *x.shape[-2:])
    tall = x.shape[-2] > x.shape[-1]
    wide = wide.mT if tall else wide
    wide = wide / torch.linalg.matrix_norm(wide, keepdim=True).clamp(min=eps)
    for a, b, c in coefficients:  # fused products round only once, which matters in bfloat16
        gram = wide @ wide.mT
        wide = torch.baddbmm(wide, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), wide, beta=a)
    return (wide.mT if tall else wide).reshape(x.shape).to(x.dtype)
