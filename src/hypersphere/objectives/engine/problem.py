"""The input of all methods to compute a loss over classes, its checks, and the choice of the method."""

import math
from typing import Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn
from torch.func import functional_call

from ...angular import Angular, AngularLike, Cosine, as_angular
from ...geometry import disable_autocast
from ...geometry.numerics import is_traced
from ..comparisons import Comparison, CrossEntropy
from ..comparisons.comparison_loss import Reduce
from ..margins import Margin, NoMargin
from ..margins.margin import AngularScore

Scale: TypeAlias = float | Float[Tensor, "..."] | Literal["feature_norm", "norms"]
"""The scale of the logits: a number, a scalar tensor, ‖x‖ (``"feature_norm"``) or ‖w‖‖x‖ (``"norms"``)."""
Chunk: TypeAlias = int | Literal["auto"] | None
"""Number of classes to compute at a time; None for all of them with plain autograd."""

MAX_FEW_LOGITS = 2**18
"""Up to this many logits (N·C), ``chunk="auto"`` uses ``few_classes``."""
MAX_DENSE_LOGITS = 2**16
"""Up to this many logits (N·C), ``chunk="auto"`` uses ``dense`` if ``few_classes`` is not possible."""
CPU_CHUNK_LOGITS, DEVICE_CHUNK_LOGITS = 2**18, 2**24
"""Logits per chunk: on a CPU few enough to stay in its cache, on another device enough to keep all of it busy."""


class Targets:
    r"""Training targets of a batch: class labels or soft targets, and optional sample weights.

    ``head(features, labels)`` is short for ``head(features, Targets(labels))``.

    Args:
        labels: The class of each sample, or the head's ``ignore_index``.
        soft: A probability for each sample and class instead of labels, p ≥ 0 with Σ_c p_ic = 1, for mixup or
            distillation. The loss is Σ_c p_ic·L(x_i, c). Without a margin this is the cross-entropy −Σ_c p_ic log q_ic;
            with a margin, every class in turn is treated as the label, as in mixup.
        weights: A factor ≥ 0 for the loss of each sample. The mean is Σ w_i·L_i / Σ w_i.

    Raises:
        ValueError: If labels and soft targets are both given or both missing, or shapes do not agree.

    >>> head = hs.SSoftmax(4, 3)
    >>> features, labels = torch.randn(2, 4), torch.tensor([0, 2])
    >>> head(features, Targets(labels)) == head(features, labels)
    tensor(True)
    >>> Targets(soft=torch.tensor([[0.7, 0.3, 0.0], [0.0, 0.0, 1.0]]), weights=torch.tensor([1.0, 0.5]))
    Targets(soft=(2, 3), weights=(2,))
    """

    def __init__(
        self,
        labels: Int[Tensor, "n"] | None = None,
        *,
        soft: Float[Tensor, "n c"] | None = None,
        weights: Float[Tensor, "n"] | None = None,
    ):
        if (labels is None) == (soft is None):
            raise ValueError("Targets needs either labels or soft targets, and not both")
        if soft is not None and (soft.ndim != 2 or not soft.is_floating_point()):
            raise ValueError(f"soft targets must be probabilities (n, classes), got {soft.dtype} {tuple(soft.shape)}")
        samples = labels if soft is None else soft
        assert samples is not None
        if weights is not None and (weights.shape != samples.shape[:1] or not weights.is_floating_point()):
            raise ValueError(
                f"weights must be {len(samples)} numbers, one per sample, got {weights.dtype} {tuple(weights.shape)}"
            )
        self.labels, self.soft, self.weights = labels, soft, weights

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.labels if self.soft is None else self.soft)  # type: ignore[arg-type]

    def to(self, device: torch.device | str) -> "Targets":
        """Return the targets on another device."""
        labels, soft, weights = (None if t is None else t.to(device) for t in (self.labels, self.soft, self.weights))
        return Targets(labels, soft=soft, weights=weights)

    def __repr__(self) -> str:
        """Return the shapes of the tensors."""
        shapes = {"labels": self.labels, "soft": self.soft, "weights": self.weights}
        return f"Targets({', '.join(f'{k}={tuple(t.shape)}' for k, t in shapes.items() if t is not None)})"


class GatheredBatch(NamedTuple):
    """The batches of all processes, concatenated in the order of their ranks. With one process, its own batch.

    Attributes:
        features: The features, for computations that are the same on every process.
        share: The same values, for computations with the classes of this process alone. The backward pass sums the
            gradients of ``share`` over the processes.
        labels: The labels, or None for soft targets.
        soft: The soft targets, or None for labels.
        weights: The sample weights, or None for equal weights.

    >>> x = torch.randn(2, 4)
    >>> GatheredBatch(x, x, torch.tensor([0, 2])).soft is None
    True
    """

    features: Float[Tensor, "n d"]
    share: Float[Tensor, "n d"]
    labels: Shaped[Tensor, "m"] | None
    soft: Float[Tensor, "n c"] | None = None
    weights: Float[Tensor, "n"] | None = None


@runtime_checkable
class Processes(Reduce, Protocol):
    """The processes that hold the other classes, and the communication with them.

    :mod:`hypersphere.collectives` explains what *replicated* and *share* mean.

    >>> [name for name in ("gather", "sum_shares", "as_share", "select_own_losses") if not hasattr(Processes, name)]
    []
    """

    def gather(self, features: Tensor, labels: Tensor, weights: Tensor | None = None) -> GatheredBatch:
        """Return the samples of all processes."""

    def sum_shares(self, share: Tensor) -> Tensor:
        """Sum shares over the processes into a replicated tensor."""

    def as_share(self, replicated: Tensor) -> Tensor:
        """Return a replicated tensor for use in a share."""

    def select_own_losses(self, losses: Tensor) -> Tensor:
        """Select the losses of this process's samples from those of all processes."""


class ClassSubset(NamedTuple):
    """The classes whose weight rows are available: K consecutive rows per class, K being the number of sub-centers.

    Attributes:
        num_classes: C, the number of all classes.
        size: Number of classes in the subset.
        first: Index of the first class, if the classes are consecutive.
        indices: Indices of the classes in increasing order, if they are not consecutive.
        counts: Weight of each class in sums over classes, such as 1/rate for sampled classes; None for 1.
        total: Number of classes that the sums over all subsets cover; None for C.
        processes: The processes that hold the other classes; None if this process holds them all.

    >>> subset = ClassSubset(10, 5, first=5)
    >>> subset.num_classes, subset.size, subset.first
    (10, 5, 5)
    """

    num_classes: int
    size: int
    first: int = 0
    indices: Int[Tensor, "c"] | None = None
    counts: Float[Tensor, "c"] | None = None
    total: Float[Tensor, ""] | None = None
    processes: Processes | None = None

    @property
    def is_whole(self) -> bool:
        """Whether the subset holds all classes, in order."""
        return self.indices is None and self.processes is None

    def select(self, positions: slice) -> slice | Int[Tensor, "c"]:
        """Return the indices of the classes at these positions of the subset."""
        if self.indices is not None:
            return self.indices[positions]
        return slice(positions.start + self.first, positions.stop + self.first) if self.first else positions

    def locate(self, labels: Int[Tensor, "n"]) -> tuple[Int[Tensor, "n"], Bool[Tensor, "n"] | None]:
        """Return the position of each label in the subset, and whether it is in the subset (None if all are)."""
        if self.is_whole:
            return labels, None
        if self.indices is None:
            position = labels - self.first
            return position, (position >= 0) & (position < self.size)
        position = torch.searchsorted(self.indices, labels)
        if not self.size:
            return position, torch.zeros_like(labels, dtype=torch.bool)
        return position, self.indices[position.clamp_max(self.size - 1)] == labels

    def sum_shares(self, share: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
        """Sum the results of all subsets over the processes."""
        return share if self.processes is None else self.processes.sum_shares(share)

    def as_share(self, replicated: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
        """Return a replicated tensor for use with the classes of this subset."""
        return replicated if self.processes is None else self.processes.as_share(replicated)


ALL_CLASSES = ClassSubset(0, 0)
"""All classes in order, for callers that do not need their number."""


class ScoreFunction(NamedTuple):
    r"""Settings of z = scale·φ(g(θ)) + b, the logits (n, c) of features (n, d) and weights (c·K, d).

    Row c·K + k of the weight is the k-th sub-center of class c. The cosine of a class is the largest one of its K rows.

    Attributes:
        margin: ψ for the target class and φ for the others.
        angular: g.
        num_classes: C, the number of all classes.
        sub_centers: K.
        weight_norm: Whether the scale includes ‖w‖.
        matmul_dtype: The dtype of the matrix products; None for the dtype of the features.
        detached: Whether the backward pass treats the margin's changes ψ − g and φ − g as constants.

    >>> ScoreFunction(NoMargin(), Cosine(), num_classes=10).sub_centers
    1
    """

    margin: Margin
    angular: Angular
    num_classes: int
    sub_centers: int = 1
    weight_norm: bool = False
    matmul_dtype: torch.dtype | None = None
    detached: bool = False


class LossProblem(NamedTuple):
    """The checked input of a :class:`LossMethod`.

    Attributes:
        batch: The features and targets as they were given.
        ignored: Whether each sample is ignored; None if none is.
        labels: The class of each sample, 0 if it is ignored, and the most probable class for soft targets.
        weight: The rows of the classes in ``subset``.
        bias: Their biases, one bias for all classes, or None.
        scores: g, the margin, and the other settings of the logits.
        comparison: The loss of the target's logit and the other logits.
        scale: The scale as given by the user.
        annealing: λ; the effect of the margin is divided by 1 + λ.
        subset: The classes of the rows.

    >>> "subset" in LossProblem._fields
    True
    """

    batch: GatheredBatch
    ignored: Bool[Tensor, "n"] | None
    labels: Int[Tensor, "n"]
    weight: Float[Tensor, "ck d"]
    bias: Float[Tensor, "..."] | None
    scores: ScoreFunction
    comparison: Comparison
    scale: Scale
    annealing: float | Float[Tensor, ""]
    subset: ClassSubset


@runtime_checkable
class LossMethod(Protocol):
    """A method to compute the losses of a batch: ``compute_dense``, ``compute_few_classes`` or ``compute_chunked``.

    >>> from hypersphere.objectives.engine.dense import compute_dense
    >>> method: LossMethod = compute_dense
    """

    def __call__(self, problem: LossProblem, chunk: int) -> Float[Tensor, "n"] | None:
        """Return the loss of each sample, or None if the method cannot handle the input; ``chunk`` is the number of classes per block."""


def compute_loss(
    batch: GatheredBatch,
    weight: Float[Tensor, "ck d"],
    subset: ClassSubset,
    *,
    margin: Margin | None = None,
    angular: AngularLike | None = None,
    scale: Scale = 30.0,
    bias: Float[Tensor, "..."] | None = None,
    comparison: Comparison | None = None,
    annealing: float | Float[Tensor, ""] = 0.0,
    sub_centers: int = 1,
    gradient: Literal["exact", "detached"] = "exact",
    reduction: Literal["mean", "sum", "none"] = "mean",
    ignore_index: int = -100,
    chunk: Chunk = "auto",
    matmul_dtype: torch.dtype | None = None,
) -> Float[Tensor, "..."]:
    """Compute :func:`~hypersphere.objectives.functional.margin_softmax` from the rows of a subset of the classes.

    If other processes hold the other classes, the loss covers the samples of all processes and all classes, and is the same
    on every process. ``reduction="none"`` returns the losses of this process's samples. In this example, classes 0 and 2 of
    three were sampled for the step:

    >>> x, w, drawn = torch.eye(3)[:1], torch.eye(3), torch.tensor([0, 2])
    >>> batch = GatheredBatch(x, x, torch.tensor([0]))
    >>> compute_loss(batch, w[drawn], ClassSubset(3, 2, indices=drawn), scale=2.0)
    tensor(0.1269)
    """
    check_arguments(batch.features, weight, bias, scale, sub_centers, gradient, reduction, subset)
    n = len(batch.features)
    scores = ScoreFunction(
        NoMargin() if margin is None else margin,
        angular if isinstance(angular, Angular) else Cosine() if angular is None else as_angular(angular),
        subset.num_classes,
        sub_centers,
        isinstance(scale, str) and scale == "norms",
        matmul_dtype,
        gradient == "detached",
    )
    if batch.soft is not None:
        check_soft_targets(batch.soft, n, scores, subset, chunk)
        labels, ignored = batch.soft.argmax(1), None
    else:
        labels, ignored = find_ignored(batch.labels, n, subset.num_classes, ignore_index)
    if batch.weights is not None and not torch.compiler.is_compiling():
        smallest = batch.weights.min() if n else batch.weights.new_zeros(())
        if not bool(smallest >= 0):
            raise ValueError(f"sample weights must be numbers ≥ 0, got {smallest.item()}")
    comparison = CrossEntropy() if comparison is None else comparison
    problem = LossProblem(batch, ignored, labels, weight, bias, scores, comparison, scale, annealing, subset)
    with disable_autocast(labels.device.type):
        loss = _compute_losses(problem, chunk)
        weights = None if batch.weights is None else batch.weights.to(loss.dtype)
        return _reduce(loss, ignored, weights, reduction, subset.processes)


def _compute_losses(problem: LossProblem, chunk: Chunk) -> Tensor:
    """Choose a method by the table in the package's docstring, and apply it."""
    # Imported here because these modules import this one.
    from .chunked import compute_chunked
    from .dense import compute_dense
    from .few_classes import compute_few_classes

    n, subset = len(problem.labels), problem.subset
    is_automatic = chunk == "auto" and problem.batch.soft is None
    if is_automatic and subset.is_whole and n * subset.size <= MAX_FEW_LOGITS and problem.scores.matmul_dtype is None:
        loss = None if is_traced() else compute_few_classes(problem)
        if loss is not None:
            return loss
    size = choose_chunk(chunk, n, subset.size, problem.labels.device) if problem.batch.soft is None else None
    if size is None and subset.is_whole:
        return compute_dense(problem)
    # A compiled graph cannot contain the hand-written backward pass, so it ends before the loop over chunks and resumes after it.
    compute = torch.compiler.disable(compute_chunked) if torch.compiler.is_compiling() else compute_chunked
    return compute(problem, max(1, subset.size) if size is None else size)


def choose_chunk(chunk: int | str | None, n: int, num_classes: int, device: torch.device) -> int | None:
    """Return the number of classes to compute at a time; None for all at once with plain autograd.

    >>> choose_chunk("auto", n=128, num_classes=100_000, device=torch.device("cpu"))
    2048
    """
    if chunk is None or (isinstance(chunk, int) and not isinstance(chunk, bool) and chunk >= 1):
        return chunk
    if chunk != "auto":
        raise ValueError(f'chunk must be "auto", None or a number of classes ≥ 1, got {chunk!r}')
    if n * num_classes <= MAX_DENSE_LOGITS or torch.compiler.is_compiling():
        return None
    return max(1, (CPU_CHUNK_LOGITS if device.type == "cpu" else DEVICE_CHUNK_LOGITS) // n)


def _reduce(
    loss: Tensor, ignored: Tensor | None, weights: Tensor | None, reduction: str, processes: Processes | None
) -> Tensor:
    """Reduce the weighted losses. The sum and the mean exclude ignored samples."""
    loss = loss if ignored is None else loss.masked_fill(ignored, 0)
    loss = loss if weights is None else loss * weights
    if reduction == "none":
        return loss if processes is None else processes.select_own_losses(loss)
    if reduction == "sum":
        return loss.sum()
    if ignored is None and weights is None:
        return loss.mean()
    if weights is None:
        assert ignored is not None
        return loss.sum() / (~ignored).sum().clamp_min(1)
    total = (weights if ignored is None else weights.masked_fill(ignored, 0)).sum()
    return loss.sum() / torch.where(total > 0, total, 1)


def clean_labels(labels: Tensor, n: int, num_classes: int, ignore_index: int) -> tuple[Tensor, Tensor]:
    """Return the labels with ``ignore_index`` replaced by 0, and a mask of the ignored ones. Refuse labels out of range."""
    labels, ignored = find_ignored(labels, n, num_classes, ignore_index)
    return labels, torch.zeros_like(labels, dtype=torch.bool) if ignored is None else ignored


def find_ignored(labels: Tensor | None, n: int, num_classes: int, ignore_index: int) -> tuple[Tensor, Tensor | None]:
    """Return the result of :func:`clean_labels`, with None as the mask if no label can be ``ignore_index``."""
    require_tensor("labels", labels, "integers, one per feature")
    assert labels is not None
    if labels.shape != (n,) or labels.is_floating_point():
        raise ValueError(
            f"labels must be {n} integers, one per feature, got {labels.dtype} of shape {tuple(labels.shape)}"
        )
    labels = labels.long()
    # torch.compile does not know the values; indexing then raises for labels out of range.
    has_values = not torch.compiler.is_compiling() and n > 0
    if has_values and not 0 <= ignore_index < num_classes and _find_out_of_range(labels, num_classes) is None:
        return labels, None
    ignored = labels == ignore_index
    labels = labels.masked_fill(ignored, 0)
    invalid = _find_out_of_range(labels, num_classes) if has_values else None
    if invalid is not None:
        raise ValueError(f"labels must be in [0, {num_classes - 1}] or ignore_index={ignore_index}, got {invalid}")
    return labels, ignored


def _find_out_of_range(labels: Tensor, num_classes: int) -> int | None:
    """Return a label below 0 or above the last class, or None if all are in range."""
    smallest, largest = (int(label) for label in torch.aminmax(labels))
    return smallest if smallest < 0 else largest if largest >= num_classes else None


def check_soft_targets(soft: Tensor, n: int, scores: ScoreFunction, subset: ClassSubset, chunk: Chunk) -> None:
    """Refuse soft targets that are not probabilities, and heads that do not support soft targets."""
    if soft.shape != (n, subset.num_classes):
        raise ValueError(f"soft targets must be ({n}, {subset.num_classes}), as the logits, got {tuple(soft.shape)}")
    if not subset.is_whole or isinstance(chunk, int):
        raise ValueError(
            "soft targets need all classes at once, which a head that is sharded, sampled or in chunks does not have; "
            "give labels, or use a whole head with chunk='auto' or None"
        )
    if type(scores.margin).others is not Margin.others:
        raise ValueError(
            f"soft targets need a margin on the target alone, but {type(scores.margin).__name__} also changes the other "
            "classes; give labels, or use another head such as ArcFace"
        )
    if torch.compiler.is_compiling() or not n:
        return
    if not bool((soft >= 0).all() and ((soft.sum(1) - 1).abs() < 1e-3).all()):
        raise ValueError("soft targets must be probabilities: numbers ≥ 0 that sum to 1 for each sample")


def check_arguments(
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    scale: Scale,
    sub_centers: int,
    gradient: str = "exact",
    reduction: str = "mean",
    subset: ClassSubset | None = None,
) -> None:
    """Refuse invalid arguments with an error that names the argument."""
    require_tensor("features", features, "(n, d) of a floating-point dtype")
    require_tensor("weight", weight, "(classes, d) of a floating-point dtype")
    if features.ndim != 2 or weight.ndim != 2 or features.shape[1] != weight.shape[1]:
        raise ValueError(
            f"features (n, d) and weight (classes, d) must agree in d, "
            f"got {tuple(features.shape)} and {tuple(weight.shape)}"
        )
    min_rows = 2 * sub_centers if subset is None or subset.is_whole else 0
    if sub_centers < 1 or len(weight) % sub_centers or len(weight) < min_rows:
        raise ValueError(
            f"weight must have sub_centers rows for each of two or more classes, got {len(weight)} rows, {sub_centers=}"
        )
    if bias is not None and bias.shape not in ((len(weight) // sub_centers,), (1,), ()):
        raise ValueError(
            f"bias must have one entry per class, {len(weight) // sub_centers}, or one for all, "
            f"got shape {tuple(bias.shape)}"
        )
    _check_scale(scale, sub_centers)
    if gradient not in ("exact", "detached"):
        raise ValueError(f'gradient must be "exact" or "detached", got {gradient!r}')
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f'reduction must be "mean", "sum" or "none", got {reduction!r}')


def require_tensor(name: str, value: object, description: str) -> None:
    """Raise a TypeError if the argument is not a torch tensor."""
    if not isinstance(value, Tensor):
        raise TypeError(
            f"{name} must be a torch tensor, {description}, got {type(value).__name__}; convert it by torch.as_tensor({name})"
        )


def _check_scale(scale: Scale, sub_centers: int) -> None:
    if isinstance(scale, str) and scale not in ("feature_norm", "norms"):
        raise ValueError(f'scale must be a number, a scalar tensor, "feature_norm" or "norms", got {scale!r}')
    if not isinstance(scale, (str, Tensor)) and not 0 < scale < math.inf:
        raise ValueError(f"scale must be a positive number, got {scale!r}")
    if isinstance(scale, str) and scale == "norms" and sub_centers > 1:
        raise ValueError(
            'scale="norms" has no meaning for several centers of different length; use a number or "feature_norm"'
        )


def is_plain(scores: ScoreFunction) -> bool:
    """Return whether the scores of the other classes are scaled cosines, with neither g nor φ."""
    return isinstance(scores.angular, Cosine) and type(scores.margin).others is Margin.others


def select_angular(scores: ScoreFunction, classes: slice | Int[Tensor, "..."]) -> AngularScore:
    """Return g for these classes, with its parameters per class, if any, restricted to them."""
    parameters = scores.angular._parameters.items()
    selected = {name: p[classes] for name, p in parameters if p is not None and p.shape == (scores.num_classes,)}
    return _ClassAngular(scores.angular, selected) if selected else scores.angular


class _ClassAngular:
    """An angular function with the given parameters in place of its own."""

    def __init__(self, angular: Angular, parameters: dict[str, Tensor]):
        self.angular, self.parameters = angular, parameters

    def __call__(self, cos: Tensor) -> Tensor:
        return functional_call(self.angular, self.parameters, (cos,))

    def at(self, theta: Tensor) -> Tensor:
        return functional_call(
            _AngularAt(self.angular), {f"angular.{n}": p for n, p in self.parameters.items()}, (theta,)
        )

    def span(self, like: Tensor) -> float | Tensor:
        return self.angular.span(like)

    def with_slope(self, cos: Tensor) -> None:
        return None


class _AngularAt(nn.Module):
    """A module whose forward is ``angular.at``, because ``functional_call`` calls forward."""

    def __init__(self, angular: Angular):
        super().__init__()
        self.angular = angular

    def forward(self, theta: Tensor) -> Tensor:
        return self.angular.at(theta)
