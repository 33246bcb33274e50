"""The SoftTriple loss."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from typing_extensions import Unpack

from ...geometry import normalize
from .pair_blocks import MIN_NORM, distance, sum_over_pairs
from .pair_loss import check_number
from .proxy import ProxyLoss, ProxyOptions


class SoftTriple(ProxyLoss):
    r"""mean_i −log( e^{λ(S_iy − δ)} / (e^{λ(S_iy − δ)} + Σ_{j≠y} e^{λ·S_ij}) ) + τ·R.

    Qian et al. (2019): each class has K centers, and a sample's similarity to the class is a soft maximum over them,
    S_ic = Σ_k softmax_k(cos θ_ick/γ)·cos θ_ick.
    R = mean_c mean_{k≠l} ‖ŵ_ck − ŵ_cl‖ merges centers that a class does not need.

    Args:
        in_features: d.
        num_classes: C, at least 2.
        sub_centers: K; 10 in Qian et al.
        scale: λ; 20 in Qian et al.
        gamma: γ, the softness of the maximum; 0.1 in Qian et al.
        margin: δ; 0.01 in Qian et al.
        tau: τ, the weight of R; 0.2 in Qian et al. (pytorch-metric-learning has no such term).
        **options: as in :class:`~hypersphere.objectives.pairs.proxy.ProxyLoss`.

    >>> head = SoftTriple(8, 5, sub_centers=3)
    >>> head(torch.randn(4, 8), torch.tensor([1, 0, 4, 4])).shape, head.logits(torch.randn(4, 8)).shape
    (torch.Size([]), torch.Size([4, 5]))
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        sub_centers: int = 10,
        scale: float = 20.0,
        gamma: float = 0.1,
        margin: float = 0.01,
        tau: float = 0.2,
        **options: Unpack[ProxyOptions],
    ):
        super().__init__(in_features, num_classes, sub_centers, **options)
        self.scale = check_number("scale", scale, low=0)
        self.gamma = check_number("gamma", gamma, low=0)
        self.margin = check_number("margin", margin, low=0, inclusive=True)
        self.tau = check_number("tau", tau, low=0, inclusive=True)

    def compute_loss_of_samples(
        self, x: Float[Tensor, "n d"], labels: Int[Tensor, "n"], weight: Float[Tensor, "ck d"]
    ) -> Float[Tensor, ""]:
        """Return the cross-entropy over the samples of all processes plus τ·R."""
        owner = torch.arange(self.num_classes, device=x.device).repeat_interleave(self.sub_centers)
        total, count = self.sum_processes(sum_over_pairs(self.terms, x, labels, weight, owner, None, self.chunk))
        loss = total / count.clamp_min(1)
        return loss + self.tau * self._compute_spread(weight) if self.tau and self.sub_centers > 1 else loss

    def terms(
        self, cos: Float[Tensor, "r m"], positive: Bool[Tensor, "r m"], negative: Bool[Tensor, "r m"]
    ) -> Float[Tensor, "terms"]:
        """Return the sum over samples, and their number."""
        own = positive[:, :: self.sub_centers]
        s = self.reduce_to_classes(cos.unflatten(1, (self.num_classes, self.sub_centers)))
        z = self.scale * torch.where(own, s - self.margin, s)
        loss = z.logsumexp(1) - torch.where(own, z, 0).sum(1)
        return torch.stack([loss.sum(), cos.new_tensor(len(cos))])

    def reduce_to_classes(self, cos: Float[Tensor, "n c k"]) -> Float[Tensor, "n c"]:
        """Return the soft maximum S over a class's centers."""
        return ((cos / self.gamma).softmax(2) * cos).sum(2)

    def _compute_spread(self, weight: Tensor) -> Tensor:
        """Return R, the mean distance between the centers of a class."""
        k = self.sub_centers
        centers = normalize(weight, min_norm=MIN_NORM).unflatten(0, (self.num_classes, k))
        return distance(centers @ centers.mT).triu(1).sum() * 2 / (self.num_classes * k * (k - 1))
