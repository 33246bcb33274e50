"""Pion: rotations of a weight on both sides, which keep its singular values."""

from collections.abc import Iterable
from typing import Any

from torch import Tensor

from .maps.exponential import exponential
from .matrix_optimizer import MatrixOptimizer, as_matrices, as_weight


class Pion(MatrixOptimizer):
    r"""W ← exp(−ηA') W exp(−ηA) with the skew parts A' = GWᵀ − WGᵀ and A = WᵀG − GᵀW of the gradient's momentum G.

    It is the steepest descent among rotations of the neurons' space and of the neurons among each other, so the
    spectrum of a pretrained weight stays what it is; weight decay has no meaning. The step is scaled by the root mean
    square of the change: η is chosen so that that of A'W + WA, times η, is ``lr · rms``. exp(X) is I + X + X²/2, whose
    error in orthogonality is X⁴/4, unless ``exact`` is asked for. A matrix of m neurons of n numbers costs products of
    m×m and n×n matrices: for convolutions with large n, see :class:`Muon`.

    Args:
        params: weights of two or more dimensions, or groups of them.
        lr: the rate, on the scale of AdamW's.
        momentum: weight of the past in the mean of gradients.
        nesterov: whether to use the mean one step ahead.
        rms: root mean square of a change at rate 1; 0.2 is that of AdamW, as in Muon's ``"match_rms_adamw"``.
        exact: whether to use the exponential itself.
        eps: the smallest root mean square to divide by.

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
        turned = _exp(-rate * left, group["exact"]) @ w @ _exp(-rate * right, group["exact"])
        p.copy_(as_weight(turned, p, group))


def _exp(x: Tensor, exact: bool) -> Tensor:
    if exact:
        return exponential(x)
    result = x + 0.5 * (x @ x)
    result.diagonal(dim1=-2, dim2=-1).add_(1)
    return result
