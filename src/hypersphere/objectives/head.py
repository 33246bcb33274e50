"""Head of a network: class weights, and a loss over the angles between features and class weights."""

import warnings
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ..angular import Angular, Cosine, as_angular
from .annealing import Annealing
from .comparisons import Comparison
from .comparisons.cross_entropy import choose_comparison
from .engine import Chunk, ClassSubset, GatheredBatch, Scale, Targets, compute_loss
from .engine.problem import check_arguments, choose_chunk
from .functional import class_logits
from .head_options import check_keywords, write_out_options
from .margins import Margin, NoMargin, Strength
from .parallel import Best, Over
from .sampling import Sample
from .sharded_classifier import ShardedClassifier

MAX_UNADVANCED_PASSES = 1000
"""Training passes without a call of ``step()`` after which a head with a schedule warns. Gradient accumulation uses fewer."""


@write_out_options
class MarginSoftmax(ShardedClassifier):
    r"""Softmax loss over angles with a margin: the general form of every objective of part I.

    .. math:: L = −\log \frac{e^{t}}{e^{t} + Σ_{j≠y} e^{z_j}},\quad t = \text{scale}·ψ(θ_y),\quad z_j = \text{scale}·φ(θ_j)

    Call ``head(features, labels)`` for the loss. :meth:`logits` and :meth:`predict` have no margin. ``weight`` is drawn from
    a normal distribution with standard deviation d^{−1/2}, so the length of its rows is near 1 for any number of classes.

    Args:
        in_features: Dimension d of the features.
        num_classes: Number of classes C, at least 2.
        margin: ψ on the target and φ on the other classes, an object of :mod:`hypersphere.objectives.margins`. The
            default is no margin.
        angular: The angular function g, an object of :mod:`hypersphere.angular`; the cosine by default.
        scale: A positive number, ``"feature_norm"``, ``"norms"``, or an ``nn.Parameter`` with one entry, which is
            learned with the head. B.3 recommends 10 to 70.
        bias: Whether to learn one bias per class, starting at 0. Normalized heads need one only for imbalanced data
            (3.3). ``"shared"`` is one number for all classes, for binary comparisons.
        comparison: How the target's logit is compared with the others, an object of
            :mod:`hypersphere.objectives.comparisons`; the cross-entropy by default.
        annealing: An :class:`Annealing`, advanced by :meth:`step` and saved in the state_dict.
        sample: Use only some of the classes in each training step: a rate, a schedule of rates such as
            ``Stages([0.1, 1.0], at=[9000])``, or a :class:`~hypersphere.objectives.Sample`. The gradient of ``weight``
            is then sparse, for :class:`~hypersphere.objectives.RowSGD` or :class:`~hypersphere.objectives.RowAdam`.
            The default is all classes.
        parallel: Whether a training run on several processes divides the classes among them; see :meth:`shard`.
        sub_centers: Number of centers K per class, of which the nearest counts. ``weight`` is (C·K, d), and row
            c·K + k is center k of class c.
        gradient: ``"exact"``, or ``"detached"`` to treat the effect of the margin as a constant in the backward pass.
        reduction: ``"mean"``, ``"sum"`` or ``"none"`` over the samples that are not ignored.
        ignore_index: Label of samples that do not count.
        label_smoothing: As in ``torch.nn.functional.cross_entropy``.
        chunk: Number of classes to compute at a time, ``"auto"``, or None for all at once.
        matmul_dtype: The dtype of the large matrix products; full precision by default.
        device: Device of the parameters.
        dtype: The dtype of the parameters.

    Raises:
        ValueError: If a number is out of its range, or options contradict each other.
        TypeError: For an unknown argument. The message lists the known ones.

    Warns:
        UserWarning: If a number is unusual, such as a scale below 1, or if a schedule is never advanced by :meth:`step`.

    >>> head = MarginSoftmax(8, 10, margin=hs.objectives.margins.AdditiveAngle(0.3), scale=20.0)
    >>> head(torch.randn(4, 8), torch.tensor([1, 0, 9, 9])).shape, head.logits(torch.randn(4, 8)).shape
    (torch.Size([]), torch.Size([4, 10]))
    """

    option_defaults: ClassVar[Mapping[str, Any]] = {}
    """Options of :class:`HeadOptions` whose default differs in a derived class."""

    def __init_subclass__(cls, **keywords: Any):
        """Show the shared options in the signature and the docstring of every head."""
        super().__init_subclass__(**keywords)
        write_out_options(cls)

    def __new__(cls, *args: Any, **options: Any) -> "MarginSoftmax":
        """Refuse unknown keywords with the list of the known ones."""
        check_keywords(cls, options)
        return super().__new__(cls)

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        margin: Margin | None = None,
        angular: Angular | None = None,
        scale: Scale = 30.0,
        bias: bool | Literal["shared"] = False,
        comparison: Comparison | None = None,
        annealing: Annealing | None = None,
        sample: float | Strength | Sample | None = None,
        parallel: bool = False,
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
        shape = () if bias == "shared" else (num_classes,)
        self.bias = nn.Parameter(torch.empty(shape, device=device, dtype=dtype)) if bias else None
        check_arguments(self.weight[:1], self.weight, self.bias, scale, sub_centers, gradient, reduction)
        choose_chunk(chunk, 1, num_classes, self.weight.device)
        self.margin = NoMargin() if margin is None else margin
        self.angular = Cosine() if angular is None else as_angular(angular).for_neurons(num_classes)
        for module in self.margin.modules():
            if isinstance(module, Strength) and module.num_classes not in (None, num_classes):
                raise ValueError(
                    f"the margin has {module.num_classes} numbers, one per class, for {num_classes} classes"
                )
        self.scale: Scale
        if isinstance(scale, Tensor) and not isinstance(scale, nn.Parameter):
            self.register_buffer("scale", scale)
        else:
            self.scale = scale
        self.comparison = choose_comparison(comparison, label_smoothing)
        self.annealing = annealing
        self.sample = sample if sample is None or isinstance(sample, Sample) else Sample(sample)
        self.parallel = parallel
        if self.sample is not None and self.sample.unbiased and not self.comparison.sums:
            raise ValueError(
                f"an unbiased sample needs a loss of sums over classes, which {type(self.comparison).__name__} is not; "
                "use Sample(rate) without it"
            )
        self.gradient, self.reduction, self.ignore_index = gradient, reduction, ignore_index
        self.chunk, self.matmul_dtype = chunk, matmul_dtype
        schedules = [m for m in self.margin.modules() if isinstance(m, Strength) and type(m).step is not Strength.step]
        # Number of training passes without a call of step(), or None if a warning is no longer needed.
        self._unadvanced_passes: int | None = 0 if annealing or self.sample or schedules else None
        for unusual in (self.margin.warning(), describe_unusual_scale(scale)):
            if unusual is not None:
                warnings.warn(unusual, UserWarning, stacklevel=3)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights again and set the biases to 0."""
        self.draw_weight(self.in_features**-0.5)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, features: Float[Tensor, "n d"], labels: Int[Tensor, "n"] | Targets) -> Float[Tensor, "..."]:
        """Compute the loss of a batch, with the margin.

        Args:
            features: The features, of any floating dtype.
            labels: The class of each sample, or :class:`~hypersphere.objectives.Targets` with soft targets or sample
                weights.

        Returns:
            A scalar, or one number per sample with ``reduction="none"``.
        """
        if self._unadvanced_passes is not None and self.training and not torch.compiler.is_compiling():
            self._count_pass()
        return self.compute_loss(features, labels)

    def _count_pass(self) -> None:
        """Warn once if ``head.step()`` was not called during many training passes."""
        assert self._unadvanced_passes is not None
        self._unadvanced_passes += 1
        if self._unadvanced_passes >= MAX_UNADVANCED_PASSES:
            self._unadvanced_passes = None
            warnings.warn(
                f"{type(self).__name__} has a schedule (annealing, sample or margin) that was not advanced in "
                f"{MAX_UNADVANCED_PASSES} training passes; call head.step() once per optimizer step",
                UserWarning,
                stacklevel=2,
            )

    def compute_loss(
        self, features: Float[Tensor, "n d"], labels: Int[Tensor, "n"] | Targets, **changed: Any
    ) -> Float[Tensor, "..."]:
        """Compute the loss of a batch.

        Args:
            features: The features.
            labels: The class of each sample, or :class:`~hypersphere.objectives.Targets`.
            **changed: Options of :func:`~hypersphere.objectives.functional.margin_softmax` that replace those of the
                head.

        Returns:
            A scalar, or one number per sample with ``reduction="none"``.
        """
        options = {
            "margin": self.margin,
            "angular": self.angular,
            "scale": self.scale,
            "bias": self.bias,
            "comparison": self.comparison,
            "annealing": 0.0 if self.annealing is None else self.annealing.value,
            "sub_centers": self.sub_centers,
            "gradient": self.gradient,
            "reduction": self.reduction,
            "ignore_index": self.ignore_index,
            "chunk": self.chunk,
            "matmul_dtype": self.matmul_dtype,
            **changed,
        }
        if (self.shards is not None or self.sample is not None) and self.uses_subset:
            return self.compute_subset_loss(
                features, labels if isinstance(labels, Targets) else Targets(labels), options
            )
        if isinstance(labels, Targets):
            batch = GatheredBatch(features, features, labels.labels, labels.soft, labels.weights)
        else:  # without Targets, whose checks would end a compiled graph
            batch = GatheredBatch(features, features, labels)
        return compute_loss(batch, self.weight, ClassSubset(self.num_classes, self.num_classes), **options)

    def logits(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n c"]:
        """Compute the logits scale·g(θ_j) + b_j of all classes, without a margin."""
        return self.local_logits(features) if self.shards is None else self.gather_logits(features)

    def predict(self, features: Float[Tensor, "n d"]) -> Int[Tensor, "n"]:
        """Return the class with the largest logit."""
        return self.logits(features).argmax(-1) if self.shards is None else self.topk(features, 1).classes[:, 0]

    def topk(self, features: Float[Tensor, "n d"], k: int) -> Best:
        """Return the ``k`` classes with the largest logits, the largest first.

        Args:
            features: The features.
            k: Number of classes per sample.

        Returns:
            Their logits and their classes, each (n, k).

        Raises:
            ValueError: If ``k`` is not in [1, C].

        >>> hs.ArcFace(8, 10).topk(torch.randn(4, 8), 3).classes.shape
        torch.Size([4, 3])
        """
        if not 1 <= k <= self.num_classes:
            raise ValueError(f"k must be an integer in [1, {self.num_classes}], got {k!r}")
        return self.find_best(features, k)

    def local_logits(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n c"]:
        """Compute the logits of the classes that this process holds."""
        return class_logits(
            features,
            self.local_rows(),
            angular=self.angular,
            scale=self.scale,
            bias=self.local_bias(),
            sub_centers=self.sub_centers,
            subset=self.local_classes(),
        )

    def shard(self, over: Over = None, *, average: bool = True) -> "MarginSoftmax":
        """Divide the classes among processes, in place. The head is then called as before.

        All processes must hold the same head when they call this. From then on they call the head together, each with
        its own samples. The loss is that of one head on the samples of all processes; its mean is over all samples that
        are not ignored. ``weight``, and ``bias`` if there is one per class, become DTensors:
        ``torch.distributed.checkpoint`` saves each as one tensor that any number of processes can read. With
        ``sub_centers=K`` the weight becomes (C, K, d), so that all centers of a class stay on one process. Create the
        optimizer after this call.

        A head that was created with ``device="meta"`` gets its weight here, for its own classes only.

        Args:
            over: A :class:`torch.distributed.device_mesh.DeviceMesh` of one dimension, a process group, or None for all
                processes.
            average: Whether the gradients of the backbone are averaged over the processes, as
                ``DistributedDataParallel`` and FSDP2 do. The gradients of the features are then multiplied by the
                number of processes, so that the average equals the gradient of one process with all samples.

        Returns:
            The head itself.

        Raises:
            ValueError: If torch.distributed does not run, or the head is already divided.
        """
        self.divide(over, average)
        return self

    def step(self) -> None:
        """Advance all schedules (annealing, sample and margin) by one step. Call once per optimizer step."""
        self._unadvanced_passes = None
        for schedule in (self.annealing, self.sample, self.margin):
            if schedule is not None:
                schedule.step()

    def extra_repr(self) -> str:
        """Return sizes, scale, and the options that differ from their defaults."""
        scale = "learned" if isinstance(self.scale, nn.Parameter) else repr(self.scale)
        options = {
            "bias": (None if self.bias is None else "shared" if self.bias.ndim == 0 else True, None),
            "sub_centers": (self.sub_centers, 1),
            "gradient": (self.gradient, "exact"),
            "chunk": (self.chunk, "auto"),
        }
        changed = [f"{name}={value!r}" for name, (value, default) in options.items() if value != default]
        return ", ".join([f"in_features={self.in_features}, num_classes={self.num_classes}, scale={scale}", *changed])


def describe_unusual_scale(scale: Scale) -> str | None:
    """Return a warning about an unusual constant scale, or None."""
    if isinstance(scale, (str, Tensor)) or 1 <= scale <= 1000:
        return None
    return f"scale={scale!r} is unusual; Liu (2020) recommends 10 to 70 (B.3). Are m and scale swapped?"
