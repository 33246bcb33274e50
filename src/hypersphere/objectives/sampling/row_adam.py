"""Adam that updates only the rows with a gradient."""

from collections.abc import Iterable
from typing import Any

from torch import Tensor

from .lazy import RowOptimizer


class RowAdam(RowOptimizer):
    r"""Adam with decoupled weight decay (AdamW) that updates only the rows with a gradient, see :class:`RowOptimizer`.

    The two momenta of a row change only when the row is updated, and the bias correction counts only these updates: each
    row is trained as if by a separate Adam. With a dense gradient, or if every row has a gradient in every step, it equals
    ``torch.optim.AdamW``, and without weight decay ``torch.optim.Adam``.

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
                "RowAdam needs lr ≥ 0, betas in [0, 1), eps > 0 and weight_decay ≥ 0, "
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
        denominator = square.sqrt().div_((1 - second**times).sqrt().to(square.dtype)).add_(group["eps"])
        weight.addcdiv_(mean, denominator.mul_((1 - first**times).to(mean.dtype)), value=-lr)
