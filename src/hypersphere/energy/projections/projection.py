"""The base class of projections: bases by dimension, redrawn on a schedule from a separate generator."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Literal, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ...geometry import accumulation_dtype, disable_autocast, upcast

Energy: TypeAlias = Callable[[Tensor], Tensor]  # (batch, neurons, dim) → (batch,)


class Projection(nn.Module, ABC):
    """Views of the neurons whose energies are summed; a view may contain several projections at once.

    A subclass defines the random arrays that it needs and their sizes by :meth:`parts`, their distribution by :meth:`draw`,
    and the projected neurons by :meth:`views`. The arrays are buffers named after their size, so layers of equal size share
    them. ``every`` is the number of steps between redraws; None never redraws.

    >>> projection = hs.energy.RandomProjection(dim=3, count=5, every=100)
    >>> isinstance(projection, Projection)
    True
    >>> projection.bind("fc", weight := torch.randn(1, 10, 64))
    >>> projection.views({"fc": weight})["fc"][0].shape
    torch.Size([5, 1, 10, 3])
    """

    arguments: ClassVar[tuple[str, ...]] = ("every",)
    """Names of the constructor's arguments that are part of the representation."""

    def __init__(self, *, every: int | None = None, reduce: Literal["mean", "max"] = "mean", seed: int = 0):
        super().__init__()
        if every is not None and every < 1:
            raise ValueError(f"every must be a number of steps ≥ 1, or None, got {every!r}")
        if reduce not in ("mean", "max"):
            raise ValueError(f'reduce must be "mean" or "max", got {reduce!r}')
        self.every, self.reduce, self.steps = every, reduce, 0
        self.generator = torch.Generator().manual_seed(seed)
        self._names: dict[str, dict[str, str]] = {}  # layer → part → buffer
        self._sizes: dict[str, tuple[str, int]] = {}  # buffer → part and size
        self._areas: dict[str, int] = {}

    @abstractmethod
    def parts(self, neurons: int, dim: int, area: int) -> dict[str, int]:
        """Return the sizes of the random arrays that a layer needs, by the name of the part."""

    @abstractmethod
    def draw(self, part: str, size: int) -> Tensor:
        """Return one random array, on the CPU, from ``self.generator``."""

    @abstractmethod
    def views(self, weights: dict[str, Tensor]) -> dict[str, list[Tensor]]:
        """Return the projected neurons of each layer: views of shape (count, groups, points, dim)."""

    def bind(self, layer: str, weight: Float[Tensor, "groups neurons dim"], area: int = 1, shared: bool = True) -> None:
        """Draw the arrays of this layer that it does not share with an earlier one; ``area`` is the size of its kernel."""
        if layer in self._names:
            raise ValueError(
                f"this projection already serves a layer called {layer!r}; pass a separate projection to each CoMHE"
            )
        self._names[layer], self._areas[layer] = {}, area
        for part, size in self.parts(weight.shape[1], weight.shape[2], area).items():
            name = f"{part}_{size}" if shared else f"{part}_{layer.replace('.', '_')}"
            self._names[layer][part] = name
            if name not in self._sizes:
                self._sizes[name] = part, size
                self.register_buffer(name, self._cast(self.draw(part, size), weight))

    def energies(self, weights: dict[str, Tensor], energy: Energy) -> dict[str, Tensor]:
        """Return the energy of each layer: the sum over its views of the mean or the maximum over their projections."""
        first = next(iter(weights.values()), None)
        if first is None:
            return {}
        with disable_autocast(first.device.type):
            views = self.views({name: upcast(weight) for name, weight in weights.items()})
            return {
                name: torch.stack([self._reduce_view(view, energy) for view in views[name]]).sum() for name in weights
            }

    def step(self, weights: dict[str, Tensor], energy: Energy) -> None:
        """Count a step and redraw the arrays if they are due."""
        self.steps += 1
        if self.every is not None and self.steps % self.every == 0:
            self.redraw()

    def redraw(self) -> None:
        """Draw the random arrays again, in place."""
        for name, (part, size) in self._sizes.items():
            self.get_buffer(name).copy_(self.draw(part, size))

    def basis(self, layer: str, like: Tensor, part: str = "basis") -> Tensor:
        """Return one random array of a layer on the device of its neurons, in float32 or better."""
        return self._cast(self.get_buffer(self._names[layer][part]), like)

    def get_extra_state(self) -> dict[str, Any]:
        """Return the counter and the state of the generator, so that a resumed run draws the same arrays."""
        return {"steps": self.steps, "generator": self.generator.get_state()}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Restore the counter and the generator."""
        self.steps = state["steps"]
        self.generator.set_state(state["generator"].cpu())

    def extra_repr(self) -> str:
        """Return the constructor's arguments."""
        values = {name: getattr(self, name) for name in self.arguments}
        return ", ".join(
            f"{key}={value:g}" if isinstance(value, float) else f"{key}={value!r}" for key, value in values.items()
        )

    def _reduce_view(self, view: Tensor, energy: Energy) -> Tensor:
        count, groups = view.shape[:2]
        energies = energy(view.flatten(0, 1)).view(count, groups).mean(1)
        return energies.mean() if self.reduce == "mean" else energies.max()

    @staticmethod
    def _cast(array: Tensor, like: Tensor) -> Tensor:
        if not array.is_floating_point():
            return array.to(like.device)
        return array.to(like.device, accumulation_dtype(like))
