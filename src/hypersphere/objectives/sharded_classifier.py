"""A classifier whose classes are all here, divided among processes, or sampled anew in each step."""

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
    """A classifier whose rows may be divided among processes or sampled; a head defines the logits."""

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
        """Compute the loss over the classes of all processes, or over those that are sampled."""
        if targets.labels is None:
            raise ValueError("soft targets need all classes at once, which a sharded or sampled head does not have")
        with self._share_random_state():
            batch = GatheredBatch(features, features, targets.labels, weights=targets.weights)
            if self.shards is not None:
                batch = self.shards.gather(features, targets.labels, targets.weights)
            assert batch.labels is not None
            bias = options.pop("bias")
            weight, reduce_to_classes, subset = self._select_classes(batch.labels)
            bias = reduce_to_classes if bias is not None and bias.ndim else bias
            return compute_loss(batch, weight, subset, bias=bias, **options)

    def local_rows(self) -> Float[Tensor, "rows d"]:
        """Return the rows of the weight that this process holds."""
        return get_local_rows(self.weight)

    def local_bias(self) -> Float[Tensor, "..."] | None:
        """Return the biases of the classes that this process holds, or the one of all classes."""
        return self.bias.to_local() if is_sharded(self.bias) else self.bias

    def local_classes(self) -> ClassSubset | None:
        """Return the classes that this process holds; None for all."""
        if self.shards is None:
            return None
        first, size = self.shards.bounds()
        return ClassSubset(self.num_classes, size, first, processes=self.shards)

    def local_logits(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n c"]:
        """Compute the logits of the classes that this process holds."""
        raise TypeError(f"{type(self).__name__} must define local_logits(features)")

    @run_outside_graphs
    def find_best(self, features: Float[Tensor, "n d"], k: int) -> Best:
        """Return the classes with the largest logits, of whichever process."""
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
        """Divide the weight, and the bias where there is one per class."""
        if self.shards is not None:
            raise ValueError("the head is already divided among processes; make a new one for another division")
        empty = self.weight.is_meta
        self.shards = create_shards(over, self.num_classes, self.weight.device, average)
        self.weight = nn.Parameter(shard_rows(self.weight, self.shards), requires_grad=self.weight.requires_grad)
        if self.bias is not None and self.bias.ndim:
            self.bias = nn.Parameter(shard_rows(self.bias, self.shards), requires_grad=self.bias.requires_grad)
        elif self.bias is not None and empty:
            self.bias = nn.Parameter(torch.empty_like(self.bias, device=self.shards.mesh.device_type))
        if empty:
            self.reset_parameters()

    def unshard(self) -> None:
        """Gather the classes of all processes into a whole head on each of them, in place; every process must call it."""
        if self.shards is None:
            return
        weight = gather_tree(self.weight.detach()).flatten(0, -2)
        self.weight = nn.Parameter(weight.contiguous(), requires_grad=self.weight.requires_grad)
        if is_sharded(self.bias):
            self.bias = nn.Parameter(gather_tree(self.bias.detach()), requires_grad=self.bias.requires_grad)
        self.shards = None

    def reset_parameters(self) -> None:
        """Draw the weights anew."""
        raise TypeError(f"{type(self).__name__} must define reset_parameters()")

    def draw_weight(self, std: float) -> None:
        """Draw Gaussian weights; processes that hold different classes draw different ones."""
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
        first, size = (0, self.num_classes) if self.shards is None else self.shards.bounds()
        if self.sample is None or not self._samples():
            return (
                self.local_rows(),
                self.local_bias(),
                ClassSubset(self.num_classes, size, first, processes=self.shards),
            )
        chosen = self.sample.draw_classes(first, size, labels.long())
        places = chosen.nonzero().squeeze(-1)
        weight, bias = select_rows(self.weight, places, self.sub_centers), self.local_bias()
        bias = bias if bias is None or not bias.ndim else bias[places]
        counts, total = None, torch.tensor(float(len(places)), dtype=torch.float64, device=labels.device)
        total = total if self.shards is None else self.shards(total, "sum")
        if self.sample.unbiased:
            in_batch = torch.zeros(size, dtype=torch.bool, device=labels.device)
            in_batch[labels[(labels >= first) & (labels < first + size)] - first] = True
            counts = torch.where(in_batch[places], 1.0, 1 / self.sample.rate).to(weight.dtype)
        ids, known = places + first, None if self.sample.unbiased else total.to(torch.float32)
        return weight, bias, ClassSubset(self.num_classes, len(places), first, ids, counts, known, self.shards)

    def _gather_features(self, features: Tensor) -> Tensor:
        """Return the features of all processes."""
        assert self.shards is not None
        return self.shards.gather(
            features, torch.zeros(len(features), dtype=torch.int64, device=features.device)
        ).features

    @contextlib.contextmanager
    def _share_random_state(self) -> Iterator[None]:
        """Let the margin draw the random numbers of the first process on every process; the others' streams stay unchanged."""
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
            given = state_dict.get(key)
            if given is not None and own is not None and (is_sharded(own) or is_sharded(given)):
                state_dict[key] = convert_stored(given, own)
            elif given is not None and own is not None and name == "weight" and given.ndim == 3:
                state_dict[key] = given.flatten(0, 1)
        super()._load_from_state_dict(state_dict, prefix, *args)
