"""Where the classes of a head are: all of them here, a run of them on each process, or those that a step has drawn."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from jaxtyping import Float, Int
from torch import Tensor, nn

from ..neurons import Classifier
from ..row_shards import is_sharded, local_of, local_rows
from .functional import part_softmax
from .margins import Margin, Strength
from .parallel import (
    Best,
    Over,
    Shards,
    best_of,
    best_over,
    divided,
    fitted,
    logits_over,
    shards_of,
    whole,
)
from .part import Everyone, Portion
from .sampling import Sample, drawn_rows

F = TypeVar("F", bound=Callable[..., Any])


def outside_of_graphs(function: F) -> F:
    """A compiled graph ends before this function and goes on behind it; the compiler is not imported for that."""

    @functools.wraps(function)
    def called(*args: Any, **options: Any) -> Any:
        chosen = torch.compiler.disable(function) if torch.compiler.is_compiling() else function
        return chosen(*args, **options)

    return cast(F, called)


class Placed(Classifier):
    """A classifier whose rows may be divided among processes and drawn in part; what is computed is the head's own."""

    bias: nn.Parameter | None
    margin: Margin
    sample: Sample | None
    shards: Shards | None = None

    @property
    def is_part(self) -> bool:
        """Whether this step sees a part of the classes only."""
        return self.shards is not None or self._draws()

    @outside_of_graphs
    def part_loss(self, features: Tensor, labels: Tensor, options: dict[str, Any]) -> Tensor:
        """The loss over the classes of all processes, or those that are drawn."""
        with self._same_draws():
            everyone = Everyone(features, features, labels)
            if self.shards is not None:
                everyone = self.shards.gather(features, labels)
            bias = options.pop("bias")
            weight, of_classes, part = self._taken(everyone.labels)
            bias = of_classes if bias is not None and bias.ndim else bias
            return part_softmax(everyone, weight, part, bias=bias, **options)

    def rows(self) -> Float[Tensor, "rows d"]:
        """The rows of the weight that this process holds."""
        return local_rows(self.weight)

    def biases(self) -> Float[Tensor, "..."] | None:
        """The biases of the classes that this process holds, or the one of all classes."""
        return self.bias.to_local() if is_sharded(self.bias) else self.bias

    def part(self) -> Portion | None:
        """The classes that this process holds; None for all."""
        if self.shards is None:
            return None
        first, size = self.shards.bounds()
        return Portion(self.num_classes, size, first, processes=self.shards)

    def logits_of(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n c"]:
        """The logits of the classes that this process holds."""
        raise TypeError(f"{type(self).__name__} must define logits_of(features)")

    @outside_of_graphs
    def best_of(self, features: Float[Tensor, "n d"], k: int) -> Best:
        """The best classes, of whichever process."""
        if self.shards is None:
            return best_of(self.logits_of(features), k)
        return best_over(self.shards, self.logits_of(self._everyone(features)).detach(), k)

    @outside_of_graphs
    @torch.no_grad()
    def logits_over(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n c"]:
        """The logits of the classes of all processes, without a gradient."""
        assert self.shards is not None
        return logits_over(self.shards, self.logits_of(self._everyone(features)))

    def place(self, over: Over, average: bool) -> None:
        """Divide the weight, and the bias where there is one per class."""
        if self.shards is not None:
            raise ValueError("the head is already divided among processes; make a new one for another division")
        empty = self.weight.is_meta
        self.shards = shards_of(over, self.num_classes, self.weight.device, average)
        self.weight = nn.Parameter(divided(self.weight, self.shards), requires_grad=self.weight.requires_grad)
        if self.bias is not None and self.bias.ndim:
            self.bias = nn.Parameter(divided(self.bias, self.shards), requires_grad=self.bias.requires_grad)
        elif self.bias is not None and empty:
            self.bias = nn.Parameter(torch.empty_like(self.bias, device=self.shards.mesh.device_type))
        if empty:
            self.reset_parameters()

    def unshard(self) -> None:
        """Gather the classes of all processes into a whole head on each of them, in place; every process must call it."""
        if self.shards is None:
            return
        weight = whole(self.weight.detach()).flatten(0, -2)
        self.weight = nn.Parameter(weight.contiguous(), requires_grad=self.weight.requires_grad)
        if is_sharded(self.bias):
            self.bias = nn.Parameter(whole(self.bias.detach()), requires_grad=self.bias.requires_grad)
        self.shards = None

    def reset_parameters(self) -> None:
        """Draw the weights anew."""
        raise TypeError(f"{type(self).__name__} must define reset_parameters()")

    def draw_weight(self, std: float) -> None:
        """Gaussian weights; processes that hold different classes draw different ones."""
        generator = None
        if self.shards is not None:
            seed = torch.empty((), dtype=torch.int64, device=local_of(self.weight).device).random_(2**62)
            dist.broadcast(seed, dist.get_global_rank(self.shards.group, 0), group=self.shards.group)
            generator = torch.Generator(seed.device).manual_seed(int(seed) + self.shards.rank)
        with torch.no_grad():
            local_of(self.weight).normal_(std=std, generator=generator)

    def _draws(self) -> bool:
        return self.sample is not None and self.training and self.sample.rate < 1

    def _taken(self, labels: Int[Tensor, "n"]) -> tuple[Tensor, Tensor | None, Portion]:
        """The rows, the biases and the part of the classes of this step."""
        first, size = (0, self.num_classes) if self.shards is None else self.shards.bounds()
        if self.sample is None or not self._draws():
            return self.rows(), self.biases(), Portion(self.num_classes, size, first, processes=self.shards)
        chosen = self.sample.drawn(first, size, labels.long())
        places = chosen.nonzero().squeeze(-1)
        weight, bias = drawn_rows(self.weight, places, self.sub_centers), self.biases()
        bias = bias if bias is None or not bias.ndim else bias[places]
        counts, total = None, torch.tensor(float(len(places)), dtype=torch.float64, device=labels.device)
        total = total if self.shards is None else self.shards(total, "sum")
        if self.sample.unbiased:
            in_batch = torch.zeros(size, dtype=torch.bool, device=labels.device)
            in_batch[labels[(labels >= first) & (labels < first + size)] - first] = True
            counts = torch.where(in_batch[places], 1.0, 1 / self.sample.rate).to(weight.dtype)
        ids, known = places + first, None if self.sample.unbiased else total.to(torch.float32)
        return weight, bias, Portion(self.num_classes, len(places), first, ids, counts, known, self.shards)

    def _everyone(self, features: Tensor) -> Tensor:
        """The features of all processes, without labels."""
        assert self.shards is not None
        return self.shards.gather(features, torch.zeros(len(features), dtype=torch.int64, device=features.device)).whole

    @contextlib.contextmanager
    def _same_draws(self) -> Iterator[None]:
        """Random numbers of the margin are those of the first process, on every one; the others' streams stand still."""
        if self.shards is None or not any(isinstance(m, Strength) and m.draws for m in self.margin.modules()):
            yield
            return
        device = local_of(self.weight).device
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
        """Weights that were stored whole or by any number of processes."""
        for name, own in (("weight", self.weight), ("bias", self.bias)):
            key = f"{prefix}{name}"
            given = state_dict.get(key)
            if given is not None and own is not None and (is_sharded(own) or is_sharded(given)):
                state_dict[key] = fitted(given, own)
            elif given is not None and own is not None and name == "weight" and given.ndim == 3:
                state_dict[key] = given.flatten(0, 1)
        super()._load_from_state_dict(state_dict, prefix, *args)
