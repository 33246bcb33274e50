"""The proxy-anchor loss."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F
from typing_extensions import Unpack

from ...collectives import select_own_rows
from .pair_blocks import log_sum_exp, make_zero_loss, sum_over_pairs
from .pair_loss import check_number
from .proxy import ProxyLoss, ProxyOptions


class ProxyAnchor(ProxyLoss):
    r"""mean_{c∈P₊} log(1 + Σ_{x∈c} e^{−α(cos θ_xc − δ)}) + mean_c log(1 + Σ_{x∉c} e^{α(cos θ_xc + δ)}).

    Kim et al. (2020): each proxy is an anchor that attracts the samples of its class and repels all others, with the largest
    weight on hard samples. P₊ are the classes with a sample in the batch; the second mean is over all classes.

    Args:
        in_features: d.
        num_classes: C, at least 2.
        margin: δ; 0.1 in Kim et al.
        alpha: α, the scale; 32 in Kim et al.
        **options: as in :class:`~hypersphere.objectives.pairs.proxy.ProxyLoss`; ``chunk`` counts proxies.

    >>> head = ProxyAnchor(8, 10)
    >>> head(torch.randn(4, 8), torch.tensor([1, 0, 9, 9])).shape, head.logits(torch.randn(4, 8)).shape
    (torch.Size([]), torch.Size([4, 10]))
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        margin: float = 0.1,
        alpha: float = 32.0,
        **options: Unpack[ProxyOptions],
    ):
        super().__init__(in_features, num_classes, **options)
        self.margin = check_number("margin", margin, low=0, inclusive=True)
        self.alpha = self.scale = check_number("alpha", alpha, low=0)

    def compute_loss_of_samples(
        self, x: Float[Tensor, "n d"], labels: Int[Tensor, "n"], weight: Float[Tensor, "ck d"]
    ) -> Float[Tensor, ""]:
        """Compute the loss with proxies as rows; each process computes its share of the rows."""
        samples, their_labels, _ = self.gather_samples(x, labels)
        if not len(samples):
            return make_zero_loss(samples, weight)
        rows, classes = weight, torch.arange(self.num_classes, device=x.device)
        if self.spans_processes:
            rows, classes = select_own_rows(rows), select_own_rows(classes)
        totals = sum_over_pairs(self.terms, rows, classes, samples, their_labels, None, self.chunk)
        attracted, present, repelled = self.sum_processes(totals)
        return attracted / present.clamp_min(1) + repelled / self.num_classes

    def terms(
        self, cos: Float[Tensor, "r m"], positive: Bool[Tensor, "r m"], negative: Bool[Tensor, "r m"]
    ) -> Float[Tensor, "terms"]:
        """Return the attraction and the number of proxies that have a sample, and the repulsion of all proxies."""
        pull = F.softplus(log_sum_exp(-self.alpha * (cos - self.margin), positive))
        push = F.softplus(log_sum_exp(self.alpha * (cos + self.margin), negative))
        return torch.stack([pull.sum(), positive.any(1).sum().to(cos.dtype), push.sum()])
