"""A classifier that holds all classes, divides them among processes, or samples some of them in each step."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from jaxtyping import Float, Int
from torch import Tensor, nn

from ..collectives import get_local, get_local_rows, is_sharded
from ..neurons import Classifier
from .engine import ClassSubset, GatheredBatch, Targets, compute_loss
from .margins import Margin, Strength
from .parallel import (
    Best,
    Over,
    Shards,
    convert_stored,
    create_shards,
    find_best_classes,
    gather_best_classes,
    gather_class_logits,
    gather_tree,
    shard_rows,
)
from .sampling import Sample, select_rows

F = TypeVar("F", bound=Callable[..., Any])


def run_outside_graphs(function: F) -> F:
    """Let a compiled graph end before this function and continue after it, without importing the compiler."""

    @functools.wraps(function)
    def wrapper(*args: Any, **options: Any) -> Any:
        chosen = torch.compiler.disable(function) if torch.compiler.is_compiling() else function
        return chosen(*args, **options)

    return cast(F, wrapper)


class ShardedClassifier(Classifier):
    """A classifier whose classes may be divided among processes or sampled. A head defines the logits."""

    bias: nn.Parameter | None
    margin: Margin
    sample: Sample | None
    shards: Shards | None = None

    @property
    def uses_subset(self) -> bool:
        """Whether this step uses a subset of the classes on this process."""
        return self.shards is not None or self._samples()

    @run_outside_graphs
    def compute_subset_loss(self, features: Tensor, targets: Targets, options: dict[str, Any]) -> Tensor:
        """Compute the loss over the classes of all processes, or over the sampled classes."""
        if targets.labels is None:
            raise ValueError("soft targets need all classes at once, which a sharded or sampled head does not have")
        with self._share_random_state():
            batch = GatheredBatch(features, features, targets.labels, weights=targets.weights)
            if self.shards is not None:
                batch = self.shards.gather(features, targets.labels, targets.weights)
            assert batch.labels is not None
            bias = options.pop("bias")
            weight, class_bias, subset = self._select_classes(batch.labels)
            bias = class_bias if bias is not None and bias.ndim else bias
            return compute_loss(batch, weight, subset, bias=bias, **options)

    def local_rows(self) -> Float[Tensor, "rows d"]:
        """Return the rows of the weight that this process holds."""
        return get_local_rows(self.weight)

    def local_bias(self) -> Float[Tensor, "..."] | None:
        """Return the biases of the classes that this process holds, or the bias that all classes share."""
        return self.bias.to_local() if is_sharded(self.bias) else self.bias

    def local_classes(self) -> ClassSubset | None:
        """Return the classes that this process holds; None for all."""
        if self.shards is None:
            return None
        first, size = self.shards.get_bounds()
        return ClassSubset(self.num_classes, size, first, processes=self.shards)

    def local_logits(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n c"]:
        """Compute the logits of the classes that this process holds."""
        raise TypeError(f"{type(self).__name__} must define local_logits(features)")

    @run_outside_graphs
    def find_best(self, features: Float[Tensor, "n d"], k: int) -> Best:
        """Return the classes with the largest logits among the classes of all processes."""
        if self.shards is None:
            return find_best_classes(self.local_logits(features), k)
        return gather_best_classes(self.shards, self.local_logits(self._gather_features(features)).detach(), k)

    @run_outside_graphs
    @torch.no_grad()
    def gather_logits(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n c"]:
        """Compute the logits of the classes of all processes, without a gradient."""
        assert self.shards is not None
        return gather_class_logits(self.shards, self.local_logits(self._gather_features(features)))

    def divide(self, over: Over, average: bool) -> None:
        """Divide the weight among the processes, and the bias if there is one per class."""
        if self.shards is not None:
            raise ValueError("the head is already divided among processes; create a new head to divide it differently")
        is_meta = self.weight.is_meta
        self.shards = create_shards(over, self.num_classes, self.weight.device, average)
        self.weight = nn.Parameter(shard_rows(self.weight, self.shards), requires_grad=self.weight.requires_grad)
        if self.bias is not None and self.bias.ndim:
            self.bias = nn.Parameter(shard_rows(self.bias, self.shards), requires_grad=self.bias.requires_grad)
        elif self.bias is not None and is_meta:
            self.bias = nn.Parameter(torch.empty_like(self.bias, device=self.shards.mesh.device_type))
        if is_meta:
            self.reset_parameters()

    def unshard(self) -> None:
        """Gather the classes of all processes, so that each process holds the whole head. Every process must call it."""
        if self.shards is None:
            return
        weight = gather_tree(self.weight.detach()).flatten(0, -2)
        self.weight = nn.Parameter(weight.contiguous(), requires_grad=self.weight.requires_grad)
        if is_sharded(self.bias):
            self.bias = nn.Parameter(gather_tree(self.bias.detach()), requires_grad=self.bias.requires_grad)
        self.shards = None

    def reset_parameters(self) -> None:
        """Draw the weights again."""
        raise TypeError(f"{type(self).__name__} must define reset_parameters()")

    def draw_weight(self, std: float) -> None:
        """Draw Gaussian weights, different ones on each process of a sharded head."""
        generator = None
        if self.shards is not None:
            seed = torch.empty((), dtype=torch.int64, device=get_local(self.weight).device).random_(2**62)
            dist.broadcast(seed, dist.get_global_rank(self.shards.group, 0), group=self.shards.group)
            generator = torch.Generator(seed.device).manual_seed(int(seed) + self.shards.rank)
        with torch.no_grad():
            get_local(self.weight).normal_(std=std, generator=generator)

    def _samples(self) -> bool:
        return self.sample is not None and self.training and self.sample.rate < 1

    def _select_classes(self, labels: Int[Tensor, "n"]) -> tuple[Tensor, Tensor | None, ClassSubset]:
        """Return the rows, the biases and the subset of the classes of this step."""
        first, size = (0, self.num_classes) if self.shards is None else self.shards.get_bounds()
        if self.sample is None or not self._samples():
            return (
                self.local_rows(),
                self.local_bias(),
                ClassSubset(self.num_classes, size, first, processes=self.shards),
            )
        drawn = self.sample.draw_classes(first, size, labels.long())
        positions = drawn.nonzero().squeeze(-1)
        weight, bias = select_rows(self.weight, positions, self.sub_centers), self.local_bias()
        bias = bias if bias is None or not bias.ndim else bias[positions]
        counts, total = None, torch.tensor(float(len(positions)), dtype=torch.float64, device=labels.device)
        total = total if self.shards is None else self.shards(total, "sum")
        if self.sample.unbiased:
            in_batch = torch.zeros(size, dtype=torch.bool, device=labels.device)
            in_batch[labels[(labels >= first) & (labels < first + size)] - first] = True
            counts = torch.where(in_batch[positions], 1.0, 1 / self.sample.rate).to(weight.dtype)
        # Unbiased sums estimate those over all classes; other sums are over the drawn classes only.
        covered = None if self.sample.unbiased else total.to(torch.float32)
        subset = ClassSubset(self.num_classes, len(positions), first, positions + first, counts, covered, self.shards)
        return weight, bias, subset

    def _gather_features(self, features: Tensor) -> Tensor:
        """Return the features of all processes."""
        assert self.shards is not None
        return self.shards.gather(
            features, torch.zeros(len(features), dtype=torch.int64, device=features.device)
        ).features

    @contextlib.contextmanager
    def _share_random_state(self) -> Iterator[None]:
        """Let the margin draw the same random numbers on every process, from the state of the first process.

        The other processes restore their own random state afterwards.
        """
        if self.shards is None or not any(isinstance(m, Strength) and m.draws for m in self.margin.modules()):
            yield
            return
        device = get_local(self.weight).device
        accelerated = device.type != "cpu"
        state = torch.get_device_module(device).get_rng_state() if accelerated else torch.get_rng_state()
        shared = state.to(device)
        dist.broadcast(shared, dist.get_global_rank(self.shards.group, 0), group=self.shards.group)
        apply = torch.get_device_module(device).set_rng_state if accelerated else torch.set_rng_state
        apply(shared.cpu())
        try:
            yield
        finally:
            if self.shards.rank:
                apply(state)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """Load weights that were stored whole or by any number of processes."""
        for name, own in (("weight", self.weight), ("bias", self.bias)):
            key = f"{prefix}{name}"
            stored = state_dict.get(key)
            if stored is not None and own is not None and (is_sharded(own) or is_sharded(stored)):
                state_dict[key] = convert_stored(stored, own)
            elif stored is not None and own is not None and name == "weight" and stored.ndim == 3:
                state_dict[key] = stored.flatten(0, 1)
        super()._load_from_state_dict(state_dict, prefix, *args)
