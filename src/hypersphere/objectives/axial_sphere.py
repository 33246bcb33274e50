"""A head for open-set identification that learns from negatives, which are samples of people who are not enrolled."""

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from ..neurons import Classifier
from .engine.problem import clean_labels


class AxialSphere(Classifier):
    r"""Classes at points on the axes and negatives at the origin: a logit loss and a distance loss with negatives.

    The features are mapped to one logit per class, v = Wx. Class c has the point ρ·e_c on its axis. Negatives, which are samples
    of people who are not to be recognized, belong to the origin. The origin is at distance ρ from every class, and two classes
    are √2·ρ apart. The loss of a sample is

    .. math:: L = \begin{cases} −\log\operatorname{softmax}(v)_y + \tfrac{λ}{ρ^2}‖v − ρe_y‖^2 & \text{class } y \\
        −\tfrac1C Σ_c \log\operatorname{softmax}(v)_c + \tfrac{λ}{ρ^2}‖v‖^2 & \text{negative} \end{cases}

    The first terms are the cross-entropy and its form for samples without a class (Dhamija et al., 2018, arXiv:1811.04110), the
    second terms move samples into a ball around their point. Identification accepts class c if ‖v − ρe_c‖ is below a radius;
    ρ/2, halfway to the origin, is a first guess (:meth:`score`). The loss follows the axial sphere loss of Vareto and
    Schwartz (2025, doi:10.1109/FG61629.2025.11099113), of which only the abstract was available: the axes, the negatives at the
    origin and the balls are theirs, and the formulas are derived here. Use it to adapt a fixed embedder to a watchlist if
    pictures of other people exist.

    Args:
        in_features: Dimension d of the features.
        num_classes: Number of labels C, at least 2, including a label of negatives.
        radius: ρ, the distance of the classes from the origin.
        weight: λ, the factor of the distances.
        negative_label: Label of negatives: −1, or one of 0 … C − 1, such as the number of a folder "unknown". The axis of this
            class is then not used.
        mix: Whether to use means of two samples of different classes in the batch as additional negatives.
        ignore_index: Label of samples that do not count.

    Raises:
        ValueError: If a number is out of its range.

    >>> head = AxialSphere(16, 3)
    >>> head(torch.randn(4, 16), torch.tensor([0, 2, -1, -1])).ndim, head.score(torch.randn(2, 16)).shape
    (0, torch.Size([2]))
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        radius: float = 10.0,
        weight: float = 1.0,
        negative_label: int = -1,
        mix: bool = False,
        ignore_index: int = -100,
    ):
        super().__init__()
        if in_features < 1 or num_classes < 2:
            raise ValueError(f"a head needs in_features ≥ 1 and num_classes ≥ 2, got {in_features} and {num_classes}")
        for name, value, least in (("radius", radius, 1e-6), ("weight", weight, 0.0)):
            if not least <= value < math.inf:
                raise ValueError(f"{name} must be a finite number ≥ {least:g}, got {value!r}")
        if negative_label == ignore_index or not (negative_label < 0 or negative_label < num_classes):
            raise ValueError(
                f"negative_label must be negative and not ignore_index={ignore_index}, or a class below {num_classes}, "
                f"got {negative_label!r}"
            )
        self.in_features, self.num_classes = in_features, num_classes
        self.radius, self.distance_weight, self.negative_label = float(radius), float(weight), negative_label
        self.mix, self.ignore_index = mix, ignore_index
        self.weight = nn.Parameter(torch.empty(num_classes, in_features))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights again."""
        nn.init.normal_(self.weight, std=self.in_features**-0.5)

    def forward(self, features: Float[Tensor, "n d"], labels: Int[Tensor, "n"]) -> Float[Tensor, ""]:
        """Compute the mean loss of a batch in float32 or better.

        Args:
            features: The features.
            labels: The class of each sample, or ``negative_label``.
        """
        negative = labels == self.negative_label
        known, ignored = clean_labels(
            labels.masked_fill(negative, self.ignore_index), len(features), self.num_classes, self.ignore_index
        )
        counts = ~ignored | negative
        v = self.logits(features)
        losses = self._compute_losses(v, known, negative)
        total, number = losses.masked_fill(~counts, 0).sum(), counts.sum()
        if self.mix:
            # Mix each sample with its neighbor in the batch, if both are of known and different classes.
            other, differs = v.roll(1, 0), (known != known.roll(1)) & ~ignored & ~ignored.roll(1)
            mixed = self._compute_losses((v + other) / 2, known, torch.ones_like(negative))
            total, number = total + mixed.masked_fill(~differs, 0).sum(), number + differs.sum()
        return total / number.clamp_min(1)

    def _compute_losses(
        self, v: Float[Tensor, "n c"], labels: Int[Tensor, "n"], negative: Bool[Tensor, "n"]
    ) -> Float[Tensor, "n"]:
        columns = self._find_axes(v.device)
        log_p = v[:, columns].log_softmax(1)
        of_negatives = -log_p.mean(1)
        # The position of each class among the classes with an axis. Negatives have no position and are masked below.
        position = torch.searchsorted(columns, labels).clamp_max(len(columns) - 1)
        of_classes = -log_p.gather(1, position.unsqueeze(1)).squeeze(1)
        points = self.radius * F.one_hot(labels, self.num_classes).to(v.dtype).masked_fill(negative.unsqueeze(1), 0)
        squares = (v - points)[:, columns].square().sum(1) / self.radius**2
        return torch.where(negative, of_negatives, of_classes) + self.distance_weight * squares

    def logits(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n c"]:
        """Return v = Wx. After training it is near ρ at a sample's class and near 0 elsewhere."""
        dtype = torch.promote_types(torch.promote_types(features.dtype, self.weight.dtype), torch.float32)
        with torch.autocast(features.device.type, enabled=False):
            return features.to(dtype) @ self.weight.to(dtype).T

    def distances(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n c"]:
        """Return ‖v − ρe_c‖ of every class; infinite for the label of negatives.

        Args:
            features: The features.
        """
        v = self.logits(features)
        columns = self._find_axes(v.device)
        square = v[:, columns].square().sum(1, keepdim=True) - 2 * self.radius * v + self.radius**2
        distances = torch.full_like(v, torch.inf)
        distances[:, columns] = square[:, columns].clamp_min(0).sqrt()
        return distances

    def score(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n"]:
        """Return minus the distance to the nearest class. A score above −ρ/2 is nearer to a class than half of the way to the origin.

        Args:
            features: The features.
        """
        return -self.distances(features).amin(1)

    def predict(self, features: Float[Tensor, "n d"]) -> Int[Tensor, "n"]:
        """Return the nearest class."""
        return self.distances(features).argmin(1)

    def _find_axes(self, device: torch.device) -> Int[Tensor, "k"]:
        """Return the classes that have an axis: all except the label of negatives."""
        classes = torch.arange(self.num_classes, device=device)
        return classes[classes != self.negative_label]

    def extra_repr(self) -> str:
        """Return sizes and numbers."""
        own = f"radius={self.radius:g}, weight={self.distance_weight:g}, negative_label={self.negative_label}, mix={self.mix}"
        return f"in_features={self.in_features}, num_classes={self.num_classes}, {own}"
