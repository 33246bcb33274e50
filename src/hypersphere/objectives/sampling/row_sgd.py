"""Stochastic gradient descent that updates only the rows with a gradient."""

from collections.abc import Iterable
from typing import Any

from torch import Tensor

from .lazy import RowOptimizer


class RowSGD(RowOptimizer):
    r"""v ← μ·v + (g + λ·w), w ← w − lr·v for the rows with a gradient only, see :class:`RowOptimizer`.

    The momentum of a row changes only when the row is updated, as in Partial FC (An et al., 2021). With a dense gradient,
    or if every row has a gradient in every step, it equals ``torch.optim.SGD``.

    >>> w = torch.nn.Parameter(torch.ones(3, 2))
    >>> w.grad = torch.sparse_coo_tensor([[1]], [[1.0, 2.0]], (3, 2), check_invariants=True)
    >>> RowSGD([w], lr=0.5).step()
    >>> w.tolist()
    [[1.0, 1.0], [0.5, 0.0], [1.0, 1.0]]
    """

    momenta: tuple[str, ...] = ("momentum_buffer",)

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float = 0.1,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
    ):
        if not (lr >= 0 and 0 <= momentum < 1 and weight_decay >= 0):
            raise ValueError(
                f"RowSGD needs lr ≥ 0, 0 ≤ momentum < 1 and weight_decay ≥ 0, got {lr!r}, {momentum!r}, {weight_decay!r}"
            )
        if nesterov and not momentum:
            raise ValueError("nesterov needs a momentum above 0")
        if not momentum:
            self.momenta = ()
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "nesterov": nesterov}
        super().__init__(params, defaults)

    def update(
        self, weight: Tensor, gradient: Tensor, momenta: list[Tensor], group: dict[str, Any], times: Tensor
    ) -> None:
        """Perform one step of SGD without a temporary tensor of the weight's size."""
        lr, decay, momentum = float(group["lr"]), group["weight_decay"], group["momentum"]
        if not momenta:
            weight.mul_(1 - lr * decay).add_(gradient, alpha=-lr)
            return
        (v,) = momenta
        v.mul_(momentum).add_(gradient).add_(weight, alpha=decay)
        if group["nesterov"]:
            weight.mul_(1 - lr * decay).add_(gradient, alpha=-lr)
        weight.add_(v, alpha=-lr * momentum if group["nesterov"] else -lr)
