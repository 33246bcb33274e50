"""The circle loss over pairs."""

from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F
from typing_extensions import Unpack

from .pair_blocks import log_sum_exp
from .pair_loss import PairOptions, SummedPairLoss, check_number


class Circle(SummedPairLoss):
    r"""mean_i log(1 + Σ_n e^{γ·α_n·(cos θ_in − m)} · Σ_p e^{−γ·α_p·(cos θ_ip − 1 + m)}).

    The weights are α_n = [cos θ_in + m]₊ and α_p = [1 + m − cos θ_ip]₊: a pair gets a larger weight the farther it is from its
    optimum (Sun et al., 2020). The mean is over samples with a positive and a negative. The class form is
    ``Proxies(d, classes, loss=Circle(0.25, 256))``.

    Args:
        m: the relaxation; 0.4 for retrieval, 0.25 for faces and for the class form.
        gamma: γ, the scale; 80 for retrieval, 256 for faces and for the class form.
        gradient: ``"exact"`` is the derivative of the loss. ``"detached"`` holds the weights α constant in the
            backward pass, as Sun et al. do; the loss has the same value.
        **options: as in :class:`~hypersphere.objectives.pairs.pair_loss.PairLoss`.

    >>> loss = Circle(m=0.5, gamma=1.0)
    >>> loss(torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 0, 1]))  # log(1 + e^{−1/4 − 1/4})
    tensor(0.4741)
    """

    def __init__(
        self,
        m: float = 0.4,
        gamma: float = 80.0,
        gradient: Literal["exact", "detached"] = "exact",
        **options: Unpack[PairOptions],
    ):
        super().__init__(**options)
        self.m = check_number("m", m, low=0, inclusive=True)
        self.gamma = check_number("gamma", gamma, low=0)
        if gradient not in ("exact", "detached"):
            raise ValueError(f'gradient must be "exact" or "detached", got {gradient!r}')
        self.gradient = gradient

    def terms(
        self, cos: Float[Tensor, "r m"], positive: Bool[Tensor, "r m"], negative: Bool[Tensor, "r m"]
    ) -> Float[Tensor, "terms"]:
        """Return the sum over samples with both kinds of pairs, and their number."""
        m, c = self.m, cos.detach() if self.gradient == "detached" else cos
        of_negatives = log_sum_exp(self.gamma * (c + m).relu() * (cos - m), negative)
        of_positives = log_sum_exp(-self.gamma * (1 + m - c).relu() * (cos - 1 + m), positive)
        both = positive.any(1) & negative.any(1)
        loss = torch.where(both, F.softplus(torch.where(both, of_negatives + of_positives, 0)), 0)
        return torch.stack([loss.sum(), both.sum().to(cos.dtype)])
