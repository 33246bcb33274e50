"""Adam that touches the rows with a gradient only."""

from collections.abc import Iterable
from typing import Any

from torch import Tensor

from .lazy import RowOptimizer


class RowAdam(RowOptimizer):
    r"""Adam with decoupled weight decay (AdamW) for the rows that were drawn; the others stay, see :class:`RowOptimizer`.

    A row's two momenta wait for it, and the correction of their start counts the steps in which it was drawn: each row is
    trained as by an Adam of its own that sees those steps only. With a dense gradient, or when every row is drawn in every step, it is
    ``torch.optim.AdamW``; without weight decay ``torch.optim.Adam``.

    >>> w = torch.nn.Parameter(torch.ones(3, 2))
    >>> w.grad = torch.sparse_coo_tensor([[1]], [[1.0, 2.0]], (3, 2), check_invariants=True)
    >>> RowAdam([w], lr=0.5).step()
    >>> w.data
    tensor([[1.0000, 1.0000],
            [0.5000, 0.5000],
            [1.0000, 1.0000]])
    """

    momenta = ("exp_avg", "exp_avg_sq")

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ):
        if not (lr >= 0 and all(0 <= beta < 1 for beta in betas) and eps > 0 and weight_decay >= 0):
            raise ValueError(
                "lr ≥ 0, betas in [0, 1), eps > 0 and weight_decay ≥ 0 are needed, "
                f"got {lr!r}, {betas!r}, {eps!r} and {weight_decay!r}"
            )
        super().__init__(params, {"lr": lr, "betas": tuple(betas), "eps": eps, "weight_decay": weight_decay})

    def update(
        self, weight: Tensor, gradient: Tensor, momenta: list[Tensor], group: dict[str, Any], times: Tensor
    ) -> None:
        """Perform one step of AdamW."""
        (first, second), lr = group["betas"], float(group["lr"])
        mean, square = momenta
        weight.mul_(1 - lr * group["weight_decay"])
        mean.lerp_(gradient, 1 - first)
        square.mul_(second).addcmul_(gradient, gradient, value=1 - second)
        length = square.sqrt().div_((1 - second**times).sqrt().to(square.dtype)).add_(group["eps"])
        weight.addcdiv_(mean, length.mul_((1 - first**times).to(mean.dtype)), value=-lr)
