"""Contrastive and triplet loss by Euclidean distances: the baselines that chapter 2 of Liu (2020) argues against."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor
from typing_extensions import Unpack

from .contrastive import Contrastive
from .pair_loss import PairOptions
from .triplet import Triplet


class NegativeDistance:
    """−‖x − y‖, which depends on the lengths of the features.

    The distances are computed from differences, because ‖x‖² + ‖y‖² − 2x·y loses the digits of close pairs. At distance 0 the
    gradient is 0.

    >>> NegativeDistance().compare(torch.tensor([[3.0, 4.0]]), torch.zeros(1, 2))
    tensor([[-5.]])
    """

    def prepare(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """Return the rows as they are."""
        return x

    def compare(self, rows: Float[Tensor, "r d"], references: Float[Tensor, "m d"]) -> Float[Tensor, "r m"]:
        """Return the negative distances."""
        return -torch.cdist(rows, references, compute_mode="donot_use_mm_for_euclid_dist")


class EuclideanContrastive(Contrastive):
    r"""mean max(0, ‖x − y‖ − m₊)^p over positive pairs + mean max(0, m₋ − ‖x − y‖)^p over negative pairs.

    Hadsell, Chopra and LeCun (2006) in its original space: features have lengths, and the margin is a distance. Liu (2020, 2.1 and
    2.3) argues that such a margin does not fit the angles in which a softmax arranges features (figure 2.8), and compares with it in
    tables 2.9 and 5.10. Use it as that baseline; :class:`Contrastive` is the same loss on the sphere.

    Args:
        positive_margin: m₊, the distance below which a positive pair is near enough; 0 in Hadsell et al.
        negative_margin: m₋, the distance beyond which a negative pair is far enough, in the units of the features.
        power: p; 2 is that of Hadsell et al. (who halve both terms).
        average: over the pairs with a loss above 0 (``"nonzero"``), or over all pairs (``"all"``).
        **options: as in :class:`~hypersphere.objectives.pairs.pair_loss.PairLoss`.

    >>> x, labels = torch.tensor([[3.0, 4.0], [0.0, 0.0], [0.6, 0.0]]), torch.tensor([0, 0, 1])
    >>> EuclideanContrastive()(x, labels)  # 5² + (1 − 0.6)²
    tensor(25.1600)
    """

    similarity = NegativeDistance()

    def __init__(
        self,
        positive_margin: float = 0.0,
        negative_margin: float = 1.0,
        power: Literal[1, 2] = 2,
        average: Literal["nonzero", "all"] = "nonzero",
        **options: Unpack[PairOptions],
    ):
        super().__init__(positive_margin, negative_margin, power, average, **options)

    def distance_of(self, similarity: Float[Tensor, "k"]) -> Float[Tensor, "k"]:
        """Return the distances."""
        return -similarity

    def similarity_at(self, distance: float) -> float:
        """Return the negative distance."""
        return -distance


class EuclideanTriplet(Triplet):
    r"""mean max(0, d_ap − d_an + m) with d = ‖x − y‖, or its square.

    Weinberger and Saul (2009) in the space of the features, a baseline of Liu (2020; 2.1, tables 2.9, 5.10) for the same reason as
    :class:`EuclideanContrastive`; :class:`Triplet` is the same loss on the sphere, as Schroff et al. (2015) use it. Use it as a
    baseline.

    Args:
        margin: m, in the units of the distances.
        mining: as in :class:`Triplet`.
        squared: whether d is the squared distance.
        average: as in :class:`Triplet`.
        **options: as in :class:`~hypersphere.objectives.pairs.pair_loss.PairLoss`.

    >>> x, y = torch.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]]), torch.tensor([0, 0, 1])
    >>> EuclideanTriplet(margin=1.0)(x, y)  # 5 − 1 + 1 and 5 − √18 + 1
    tensor(3.3787)
    """

    similarity = NegativeDistance()
    similarity_bound = 1e30

    def __init__(
        self,
        margin: float = 0.2,
        mining: Literal["all", "hard", "semihard"] = "all",
        squared: bool = False,
        average: Literal["nonzero", "all"] = "nonzero",
        **options: Unpack[PairOptions],
    ):
        super().__init__(margin, mining, squared, average, **options)

    def _compute_distance(self, cos: Tensor) -> Tensor:
        return cos.square() if self.squared else -cos
