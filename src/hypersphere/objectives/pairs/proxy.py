"""The interface of losses with class proxies: features are compared with the rows of a classifier."""

from abc import ABC, abstractmethod

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from typing_extensions import Unpack

from ...geometry import normalize
from ...neurons import Classifier
from ..engine.problem import clean_labels
from .pair_blocks import MIN_NORM
from .pair_loss import PairOptions, PairSettings


class ProxyOptions(PairOptions, total=False):
    """Options of every loss with proxies, with their defaults in :class:`ProxyLoss`."""

    device: torch.device | str | None
    dtype: torch.dtype | None


class ProxyLoss(PairSettings, Classifier, ABC):
    """A loss between features and learned proxies, the rows of ``weight``: called as ``loss(features, labels)``.

    :meth:`logits` and :meth:`predict` classify by the same rows, without margins. The loss does not depend on the lengths of
    features and proxies. Half precision is computed in float32, also under autocast. All processes hold the same weight.

    Args:
        in_features: d.
        num_classes: C, at least 2.
        sub_centers: K proxies per class; row c·K + k is the k-th of class c.
        chunk: number of rows of the matrix of cosines to compute at a time, as in
            :class:`~hypersphere.objectives.pairs.pair_loss.PairLoss`.
        gather: whether the loss covers the batches of all processes, as in
            :class:`~hypersphere.objectives.pairs.pair_loss.PairLoss`.
        ignore_index: label of samples that do not count.

    ``weight`` starts Gaussian with standard deviation d^{−1/2}, as in a head.

    >>> loss = hs.objectives.ProxyAnchor(2, 3)
    >>> loss.weight.data = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    >>> x = torch.tensor([[0.2, 2.0], [3.0, 0.1]])
    >>> loss.predict(x), bool(loss(x, torch.tensor([1, 0])) < loss(x, torch.tensor([0, 1])))
    (tensor([1, 0]), True)
    """

    scale: float = 1.0

    def __init__(self, in_features: int, num_classes: int, sub_centers: int = 1, **options: Unpack[ProxyOptions]):
        super().__init__()
        if not in_features >= 1 or not num_classes >= 2 or not sub_centers >= 1:
            raise ValueError(
                "a loss with proxies needs in_features ≥ 1, num_classes ≥ 2 and sub_centers ≥ 1, "
                f"got {in_features}, {num_classes} and {sub_centers}"
            )
        self.in_features, self.num_classes, self.sub_centers = in_features, num_classes, sub_centers
        self.set_options(options)
        size = (num_classes * sub_centers, in_features)
        self.weight = nn.Parameter(torch.empty(size, device=options.get("device"), dtype=options.get("dtype")))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the proxies again."""
        nn.init.normal_(self.weight, std=self.in_features**-0.5)

    def forward(self, features: Float[Tensor, "n d"], labels: Int[Tensor, "n"]) -> Float[Tensor, ""]:
        """Compute the loss of a batch in float32 or better. Without samples it is 0 with zero gradients."""
        with torch.autocast(features.device.type, enabled=False):
            x = self._prepare_features(features)
            labels, ignored = clean_labels(labels, len(x), self.num_classes, self.ignore_index)
            if bool(ignored.any()):
                x, labels = x[~ignored], labels[~ignored]
            return self.compute_loss_of_samples(x, labels, self.weight.to(x.dtype))

    @abstractmethod
    def compute_loss_of_samples(
        self, x: Float[Tensor, "n d"], labels: Int[Tensor, "n"], weight: Float[Tensor, "ck d"]
    ) -> Float[Tensor, ""]:
        """Return the loss of checked samples, in one dtype with the weight."""

    def logits(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n c"]:
        """Return scale·cos θ of each class, without a margin. If a class has several proxies, the nearest one counts."""
        with torch.autocast(features.device.type, enabled=False):
            x = self._prepare_features(features)
            cos = normalize(x, min_norm=MIN_NORM) @ normalize(self.weight.to(x.dtype), min_norm=MIN_NORM).T
            return self.scale * self.reduce_to_classes(cos.unflatten(1, (self.num_classes, self.sub_centers)))

    def reduce_to_classes(self, cos: Float[Tensor, "n c k"]) -> Float[Tensor, "n c"]:
        """Return the similarity to each class: the largest over its proxies."""
        return cos.amax(2)

    def predict(self, features: Float[Tensor, "n d"]) -> Int[Tensor, "n"]:
        """Return the class with the largest logit."""
        return self.logits(features).argmax(-1)

    def _prepare_features(self, features: Tensor) -> Tensor:
        if features.ndim != 2 or features.shape[1] != self.in_features or not features.is_floating_point():
            raise ValueError(
                f"features must be floating-point of shape (n, {self.in_features}), "
                f"got {features.dtype} of shape {tuple(features.shape)}"
            )
        return features.to(torch.promote_types(torch.promote_types(features.dtype, self.weight.dtype), torch.float32))
