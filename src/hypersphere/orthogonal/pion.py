"""Pion, an optimizer that rotates a weight on both sides and preserves its singular values."""

from collections.abc import Iterable
from typing import Any

from torch import Tensor

from .maps.exponential import exponential
from .matrix_optimizer import MatrixOptimizer, as_matrices, as_weight


class Pion(MatrixOptimizer):
    r"""W ← exp(−ηA') W exp(−ηA), where A' = GWᵀ − WGᵀ and A = WᵀG − GᵀW for the momentum G of the gradient.

    This is steepest descent over rotations of the input space and of the output space, so the singular values of a
    pretrained weight do not change and weight decay would have no effect. η is chosen such that the root mean square
    of η(A'W + WA) is ``lr · rms``. Unless ``exact`` is set, exp(X) is approximated by I + X + X²/2, whose deviation from
    orthogonality is X⁴/4. A weight with m neurons of dimension n needs products with m×m and n×n matrices; for
    convolutions with large n, prefer :class:`Muon`.

    Args:
        params: Weights with two or more dimensions, or parameter groups of them.
        lr: Learning rate, on the same scale as that of AdamW.
        momentum: Decay rate of the exponential moving average of the gradients.
        nesterov: Whether to use Nesterov momentum.
        rms: Root mean square of an update at learning rate 1. The default 0.2 is that of AdamW, as in Muon's
            ``"match_rms_adamw"``.
        exact: Whether to compute the exact matrix exponential.
        eps: Lower bound of the root mean square in the denominator.

    >>> layer = torch.nn.Linear(6, 4, bias=False)
    >>> before = torch.linalg.svdvals(layer.weight)
    >>> optimizer = Pion(layer.parameters(), lr=0.1, exact=True)
    >>> layer(torch.ones(2, 6)).square().sum().backward()
    >>> optimizer.step()
    >>> torch.allclose(torch.linalg.svdvals(layer.weight), before, atol=1e-5)
    True
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        momentum: float = 0.95,
        *,
        nesterov: bool = True,
        rms: float = 0.2,
        exact: bool = False,
        eps: float = 1e-12,
    ):
        if not rms > 0:
            raise ValueError(f"rms must be a number > 0, got {rms!r}")
        defaults = {"lr": lr, "momentum": momentum, "nesterov": nesterov, "rms": rms, "exact": exact, "eps": eps}
        super().__init__(params, defaults)

    def _update(self, p: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        w, g = as_matrices(p, group), as_matrices(self._momentum(p, gradient, group), group)
        left, right = g @ w.mT, w.mT @ g
        left, right = left - left.mT, right - right.mT
        change = left @ w + w @ right
        size = change.square().mean((-2, -1), keepdim=True).sqrt()
        rate = group["lr"] * group["rms"] / size.clamp_min(group["eps"])
        rotated = _exponentiate(-rate * left, group["exact"]) @ w @ _exponentiate(-rate * right, group["exact"])
        p.copy_(as_weight(rotated, p, group))


def _exponentiate(x: Tensor, exact: bool) -> Tensor:
    if exact:
        return exponential(x)
    result = x + 0.5 * (x @ x)
    result.diagonal(dim1=-2, dim2=-1).add_(1)
    return result
