"""The hyperspherical uniformity gap."""

from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from typing_extensions import Unpack

from ...collectives import select_own_rows
from ...geometry import norm, normalize
from .pair_blocks import MIN_NORM, sum_over_pairs
from .pair_loss import check_number
from .proxy import ProxyLoss, ProxyOptions

MIN_DISTANCE = 1e-3
"""Distances between proxies are at least this in the energy, so that it stays finite if two proxies coincide."""


class HUG(ProxyLoss):
    r"""α·mean_{c≠c'} ‖ŵ_c − ŵ_c'‖^{−s} + β·mean_c mean_{x∈c} ‖x̂ − ŵ_c‖: the first term spreads the proxies.

    The second term moves samples to the proxy of their class; its mean is over the classes of the batch. It is the form of Liu et
    al. (2023) with minimum hyperspherical energy: the uniformity between classes minus that within classes. Unlike in a softmax,
    the two terms have separate weights.

    Args:
        in_features: d.
        num_classes: C, at least 2.
        alpha: α, the weight of the energy between classes.
        beta: β, the weight of the spread within classes.
        s: the power of the energy; 2 in Liu et al.
        gradient: With ``"exact"`` both terms move the proxies. With ``"detached"`` they are constant in the second term, as in the
            authors' code; the loss has the same value.
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
        samples, their_labels, _ = self.gather_samples(x, labels)
        return self.alpha * self._compute_between(weight) + self.beta * self._compute_within(
            samples, their_labels, weight
        )

    def terms(
        self, cos: Float[Tensor, "r m"], positive: Bool[Tensor, "r m"], negative: Bool[Tensor, "r m"]
    ) -> Float[Tensor, "terms"]:
        """Return the sum of ‖ŵ_c − ŵ_c'‖^{−s} over pairs of different classes."""
        square = torch.where(negative, 2 - 2 * cos, 1).clamp_min(MIN_DISTANCE**2)
        return torch.where(negative, square ** (-self.s / 2), 0).sum().unsqueeze(0)

    def _compute_between(self, weight: Tensor) -> Tensor:
        classes = torch.arange(self.num_classes, device=weight.device)
        rows, own_classes = weight, classes
        if self.spans_processes:
            rows, own_classes = select_own_rows(rows), select_own_rows(classes)
        total = self.sum_processes(sum_over_pairs(self.terms, rows, own_classes, weight, classes, None, self.chunk))
        return total.squeeze(0) / (self.num_classes * (self.num_classes - 1))

    def _compute_within(self, x: Tensor, labels: Tensor, weight: Tensor) -> Tensor:
        proxies = normalize(weight[labels], min_norm=MIN_NORM)
        proxies = proxies.detach() if self.gradient == "detached" else proxies
        distances = norm(normalize(x, min_norm=MIN_NORM) - proxies)
        counts = torch.bincount(labels, minlength=self.num_classes)
        return (distances / counts[labels]).sum() / (counts > 0).sum().clamp_min(1)
