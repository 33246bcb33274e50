"""A layer's weight as R·V: the parametrization that :func:`~hypersphere.orthogonal.overparameterize` registers."""

import copy

import torch
from jaxtyping import Float
from torch import Tensor, nn

from .maps import Map
from .maps.map_precision import accumulable
from .reparametrization import Reparametrization, Start, reparametrized


class Rotation(nn.Module):
    """One R: a map and the free matrix ``raw`` it is made from, ``(n, n)`` or one for each of the independent blocks."""

    def __init__(
        self, map: Map, shape: tuple[int, ...], start: Start, like: Tensor, generator: torch.Generator | None = None
    ):
        super().__init__()
        self.map = map
        empty = torch.empty(shape, dtype=accumulable(like.dtype), device=like.device)
        first = {"usual": map.start, "normal": map.normal}
        self.raw = nn.Parameter(first[start](empty, generator) if start in first else map.identity(empty))

    def forward(self, rows: Float[Tensor, "*blocks neurons n"]) -> Float[Tensor, "*blocks neurons n"]:
        """R v for every row v, in the rows' dtype."""
        return self.map.act(self.raw.to(rows.dtype), rows)

    def matrix(self) -> Float[Tensor, "*blocks n n"]:
        """R, in float32 or better."""
        with torch.autocast(self.raw.device.type, enabled=False):
            return self.map(self.raw.to(accumulable(self.raw.dtype)))


class Overparameterization(Reparametrization):
    r"""W = V Rᵀ over the rows of a layer's weight: w_i = R v_i (7.1).

    ``blocks`` cuts every neuron along its channels, R = Diag(R⁽¹⁾, …, R⁽ᵏ⁾) (F.34) or one R⁽¹⁾ for all (F.33). Each task
    has a rotation of its own over the same V (F.8).
    """

    def __init__(self, dim: int, *, blocks: int = 1, share: bool = False):
        super().__init__()
        self.blocks, self.share = blocks, share
        self.shape = (dim // blocks,) * 2 if share or blocks == 1 else (blocks, dim // blocks, dim // blocks)

    def add(self, task: str, map: Map, start: Start, like: Tensor, generator: torch.Generator | None = None) -> None:
        """A new rotation over the same neurons."""
        self.tasks[task] = Rotation(map, self.shape, start, like, generator)

    def add_like(self, task: str, start: Start, generator: torch.Generator | None) -> None:
        """A rotation by a copy of the map of the task in use."""
        self.add(task, copy.deepcopy(self.rotation.map), start, self.rotation.raw.detach(), generator)

    @property
    def rotation(self) -> Rotation:
        """The rotation of the task in use."""
        rotation = self.tasks[self.active]
        assert isinstance(rotation, Rotation)
        return rotation

    def effective(self, neurons: Float[Tensor, "neurons *dim"]) -> Float[Tensor, "neurons *dim"]:  # type: ignore[override]
        """The effective weight, computed in float32 or better, in the neurons' dtype."""
        with torch.autocast(neurons.device.type, enabled=False):
            rows = neurons.flatten(1).to(accumulable(neurons.dtype, self.rotation.raw.dtype))
            return self._rotate(rows).reshape(neurons.shape).to(neurons.dtype)

    @torch.no_grad()
    def error(self) -> float:
        """The largest entry of |RᵀR − I|."""
        r = self.rotation.matrix().double()
        return float((r.mT @ r - torch.eye(r.shape[-1], dtype=r.dtype, device=r.device)).abs().max())

    def count(self, freedom: bool) -> int:
        """The entries of X, or the dimension of the set of its R."""
        numbers, n = self.rotation.raw.numel(), self.shape[-1]
        return self.rotation.map.freedom(n) * (numbers // n**2) if freedom else numbers

    def _rotate(self, rows: Tensor) -> Tensor:
        n = self.shape[-1]
        if len(self.shape) == 2:  # one matrix; shared by all blocks it simply meets more rows
            return self.rotation(rows.reshape(-1, n)).reshape(rows.shape)
        blocks = rows.reshape(-1, self.blocks, n).transpose(0, 1)
        return self.rotation(blocks).transpose(0, 1).reshape(rows.shape)

    def extra_repr(self) -> str:
        """The blocks and the task in use."""
        return f"blocks={self.blocks}, share={self.share}, active={self.active!r}"


def overparameterized(model: nn.Module) -> dict[str, Overparameterization]:
    """The over-parameterizations of a model by the names of their layers; none at all is an error."""
    found = {name: site.own for name, site in reparametrized(model).items()}
    own = {name: o for name, o in found.items() if isinstance(o, Overparameterization)}
    if not own:
        raise ValueError(f"{type(model).__name__} has no over-parameterized layer: call overparameterize(model) first")
    return own
