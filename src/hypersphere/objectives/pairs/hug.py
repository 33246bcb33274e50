"""The hyperspherical uniformity gap."""

from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from typing_extensions import Unpack

from ...collectives import is_distributed, select_own_rows, sum_over_processes
from ...geometry import norm, normalize
from .pair_blocks import MIN_NORM, pair_sums
from .pair_loss import check_number
from .proxy import ProxyLoss, ProxyOptions

FLOOR = 1e-3  # distances below this count as this far: coinciding proxies have a finite energy


class HUG(ProxyLoss):
    r"""α·mean_{c≠c'} ‖ŵ_c − ŵ_c'‖^{−s} + β·mean_c mean_{x∈c} ‖x̂ − ŵ_c‖: proxies spread, samples gather at their own.

    Liu et al. (2023), the form by minimum hyperspherical energy: the uniformity between classes less the one within
    them. The second mean is over the classes of the batch. Unlike a softmax the two parts are weighed on their own.

    Args:
        in_features: d.
        num_classes: C, at least 2.
        alpha: α, the weight of the energy between classes.
        beta: β, the weight of the spread within classes.
        s: the power of the energy; 2 in Liu et al.
        gradient: ``"exact"`` moves proxies by both terms. ``"detached"`` holds them constant in the second, as the
            authors' code does, so that they spread without regard to the samples; the loss has the same value.
        **options: as in :class:`~hypersphere.objectives.pairs.proxy.ProxyLoss`; ``chunk`` counts proxies.

    >>> head = HUG(2, 2)
    >>> _ = head.weight.data.copy_(torch.eye(2))
    >>> head(torch.tensor([[3.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 0]))  # 1/2 + √2/2
    tensor(1.2071, grad_fn=<AddBackward0>)
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        alpha: float = 1.0,
        beta: float = 1.0,
        s: float = 2.0,
        gradient: Literal["exact", "detached"] = "exact",
        **options: Unpack[ProxyOptions],
    ):
        super().__init__(in_features, num_classes, **options)
        self.alpha = check_number("alpha", alpha, low=0, inclusive=True)
        self.beta = check_number("beta", beta, low=0, inclusive=True)
        self.s = check_number("s", s, low=0)
        if gradient not in ("exact", "detached"):
            raise ValueError(f'gradient must be "exact" or "detached", got {gradient!r}')
        self.gradient = gradient

    def compute_loss_of_samples(
        self, x: Float[Tensor, "n d"], labels: Int[Tensor, "n"], weight: Float[Tensor, "ck d"]
    ) -> Float[Tensor, ""]:
        """Compute the energy between the proxies, divided among the processes, and the spread within classes."""
        return self.alpha * self._compute_between(weight) + self.beta * self._within(
            *self.gather_samples(x, labels), weight
        )

    def terms(
        self, cos: Float[Tensor, "r m"], positive: Bool[Tensor, "r m"], negative: Bool[Tensor, "r m"]
    ) -> Float[Tensor, "terms"]:
        """Return the sum of ‖ŵ_c − ŵ_c'‖^{−s} over pairs of different classes."""
        square = torch.where(negative, 2 - 2 * cos, 1).clamp_min(FLOOR**2)
        return torch.where(negative, square ** (-self.s / 2), 0).sum().unsqueeze(0)

    def _compute_between(self, weight: Tensor) -> Tensor:
        rows, classes = weight, torch.arange(self.num_classes, device=weight.device)
        spread = self.gather and is_distributed()
        mine = (select_own_rows(rows), select_own_rows(classes)) if spread else (rows, classes)
        total = pair_sums(self.terms, *mine, weight, classes, None, self.chunk)
        total = sum_over_processes(total) if spread else total
        return total.squeeze(0) / (self.num_classes * (self.num_classes - 1))

    def _within(self, x: Tensor, labels: Tensor, weight: Tensor) -> Tensor:
        proxies = normalize(weight[labels], min_norm=MIN_NORM)
        proxies = proxies.detach() if self.gradient == "detached" else proxies
        away = norm(normalize(x, min_norm=MIN_NORM) - proxies)
        counts = torch.bincount(labels, minlength=self.num_classes)
        return (away / counts[labels]).sum() / (counts > 0).sum().clamp_min(1)
