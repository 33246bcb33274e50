"""The head of a network: class weights, and a loss over the angles to them."""

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ..angular import AngularLike, Cosine, as_angular
from ..neurons import Classifier
from .annealing import Annealing
from .checks import Scale, check
from .functional import Chunk, class_logits, margin_softmax
from .large import chunk_size
from .margins import Margin, NoMargin


class MarginSoftmax(Classifier):
    r"""−log e^{t} / (e^{t} + Σ_{j≠y} e^{z_j}), t = scale·ψ(θ_y), z_j = scale·g(θ_j): every objective of part I.

    Called as ``head(features, labels)`` for the loss; :meth:`logits` and :meth:`predict` have no margin. The arguments and their
    meaning are those of :func:`~hypersphere.objectives.functional.margin_softmax`, except

    Args:
        in_features: d.
        num_classes: C, at least 2.
        scale: a positive number, ``"feature_norm"``, ``"norms"``, or an ``nn.Parameter`` with one entry, which is learned with the
            head. 30 is in the range of 10 to 70 that B.3 recommends.
        bias: one number per class, starting at 0; the normalized forms have none unless the data is imbalanced (3.3).
        annealing: an :class:`Annealing`, advanced by :meth:`step` and saved in the state_dict.
        sub_centers: K centres per class, the nearest of which counts. ``weight`` is (C·K, d), row c·K + k for centre k of class c.

    ``weight`` starts Gaussian with standard deviation d^{−1/2}, so its rows have a length near 1 whatever C is.

    >>> head = MarginSoftmax(8, 10, margin=hs.objectives.margins.AdditiveAngle(0.3), scale=20.0)
    >>> head(torch.randn(4, 8), torch.tensor([1, 0, 9, 9])).shape, head.logits(torch.randn(4, 8)).shape
    (torch.Size([]), torch.Size([4, 10]))
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        margin: Margin | None = None,
        angular: AngularLike | None = None,
        scale: Scale = 30.0,
        bias: bool = False,
        annealing: Annealing | None = None,
        sub_centers: int = 1,
        gradient: Literal["exact", "detached"] = "exact",
        reduction: Literal["mean", "sum", "none"] = "mean",
        ignore_index: int = -100,
        label_smoothing: float = 0.0,
        chunk: Chunk = "auto",
        matmul_dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__()
        if in_features < 1 or num_classes < 2:
            raise ValueError(f"a head needs in_features ≥ 1 and num_classes ≥ 2, got {in_features} and {num_classes}")
        if sub_centers < 1:
            raise ValueError(f"sub_centers must be an integer ≥ 1, got {sub_centers}")
        self.in_features, self.num_classes, self.sub_centers = in_features, num_classes, sub_centers
        self.weight = nn.Parameter(torch.empty(num_classes * sub_centers, in_features, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(num_classes, device=device, dtype=dtype)) if bias else None
        check(self.weight[:1], self.weight, self.bias, scale, sub_centers, gradient, reduction, label_smoothing)
        chunk_size(chunk, 1, num_classes, self.weight.device)
        self.margin = NoMargin() if margin is None else margin
        self.angular = Cosine() if angular is None else as_angular(angular).for_neurons(num_classes)
        self.scale = scale
        self.annealing = annealing
        self.gradient, self.reduction, self.ignore_index = gradient, reduction, ignore_index
        self.label_smoothing, self.chunk, self.matmul_dtype = label_smoothing, chunk, matmul_dtype
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights anew; the biases become 0."""
        nn.init.normal_(self.weight, std=self.in_features**-0.5)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, features: Float[Tensor, "n d"], labels: Int[Tensor, "n"]) -> Float[Tensor, "..."]:
        """The loss of a batch, with the margin."""
        return margin_softmax(
            features,
            self.weight,
            labels,
            margin=self.margin,
            angular=self.angular,
            scale=self.scale,
            bias=self.bias,
            annealing=0.0 if self.annealing is None else self.annealing.value,
            sub_centers=self.sub_centers,
            gradient=self.gradient,
            reduction=self.reduction,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
            chunk=self.chunk,
            matmul_dtype=self.matmul_dtype,
        )

    def logits(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n c"]:
        """scale·g(θ_j) + b_j, without a margin."""
        return class_logits(
            features, self.weight, angular=self.angular, scale=self.scale, bias=self.bias, sub_centers=self.sub_centers
        )

    def predict(self, features: Float[Tensor, "n d"]) -> Int[Tensor, "n"]:
        """The class with the largest logit."""
        return self.logits(features).argmax(-1)

    def step(self) -> None:
        """One training step has been made: the annealing, if there is one, moves on. Nothing else moves it."""
        if self.annealing is not None:
            self.annealing.step()

    def extra_repr(self) -> str:
        """Sizes, scale, and the options that are not the default."""
        scale = "learned" if isinstance(self.scale, nn.Parameter) else repr(self.scale)
        options = {
            "bias": (self.bias is not None, False),
            "sub_centers": (self.sub_centers, 1),
            "gradient": (self.gradient, "exact"),
            "label_smoothing": (self.label_smoothing, 0.0),
            "chunk": (self.chunk, "auto"),
        }
        shown = [f"{name}={value!r}" for name, (value, default) in options.items() if value != default]
        return ", ".join([f"in_features={self.in_features}, num_classes={self.num_classes}, scale={scale}", *shown])
