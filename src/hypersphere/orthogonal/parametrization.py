"""A layer's weight as R·V: the parametrization that :func:`~hypersphere.orthogonal.overparameterize` registers."""

from collections.abc import Iterator
from typing import Any, Literal, TypeAlias, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils import parametrize

from .maps import Map
from .maps.precision import accumulable

Start: TypeAlias = Literal["usual", "normal", "identity"]
STARTS: tuple[Start, ...] = get_args(Start)


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


class Overparameterization(nn.Module):
    r"""W = V Rᵀ over the rows of a layer's weight: w_i = R v_i (7.1).

    ``blocks`` cuts every neuron along its channels, R = Diag(R⁽¹⁾, …, R⁽ᵏ⁾) (F.34) or one R⁽¹⁾ for all (F.33). Each task
    has a rotation of its own over the same V (F.8).
    """

    def __init__(self, dim: int, *, blocks: int = 1, share: bool = False):
        super().__init__()
        self.blocks, self.share = blocks, share
        self.shape = (dim // blocks,) * 2 if share or blocks == 1 else (blocks, dim // blocks, dim // blocks)
        self.tasks = nn.ModuleDict()
        self.active = "default"
        self.plain: dict[str, Any] = {}  # what merging restores: the order of the parameters, whether the weight learns

    def add(self, task: str, map: Map, start: Start, like: Tensor, generator: torch.Generator | None = None) -> None:
        """A new rotation over the same neurons."""
        self.tasks[task] = Rotation(map, self.shape, start, like, generator)

    @property
    def rotation(self) -> Rotation:
        """The rotation of the task in use."""
        rotation = self.tasks[self.active]
        assert isinstance(rotation, Rotation)
        return rotation

    def forward(self, neurons: Float[Tensor, "neurons *dim"]) -> Float[Tensor, "neurons *dim"]:
        """The effective weight, computed in float32 or better, in the neurons' dtype."""
        with torch.autocast(neurons.device.type, enabled=False):
            rows = neurons.flatten(1).to(accumulable(neurons.dtype, self.rotation.raw.dtype))
            return self._rotate(rows).reshape(neurons.shape).to(neurons.dtype)

    def _rotate(self, rows: Tensor) -> Tensor:
        n = self.shape[-1]
        if len(self.shape) == 2:  # one matrix; shared by all blocks it simply meets more rows
            return self.rotation(rows.reshape(-1, n)).reshape(rows.shape)
        blocks = rows.reshape(-1, self.blocks, n).transpose(0, 1)
        return self.rotation(blocks).transpose(0, 1).reshape(rows.shape)

    def extra_repr(self) -> str:
        """The blocks and the task in use."""
        return f"blocks={self.blocks}, share={self.share}, active={self.active!r}"


def find(module: nn.Module) -> Overparameterization | None:
    """The over-parameterization of this layer's weight, if it has one."""
    if not parametrize.is_parametrized(module, "weight"):
        return None
    first = module.parametrizations["weight"][0]  # type: ignore[index]
    return first if isinstance(first, Overparameterization) else None


def overparameterized(model: nn.Module) -> dict[str, Overparameterization]:
    """The over-parameterizations of a model by the names of their layers; none at all is an error."""
    found = dict(_search(model))
    if not found:
        raise ValueError(f"{type(model).__name__} has no over-parameterized layer: call overparameterize(model) first")
    return found


def _search(model: nn.Module) -> Iterator[tuple[str, Overparameterization]]:
    for name, module in model.named_modules():
        if (own := find(module)) is not None:
            yield name, own


def register(module: nn.Module, neurons: Tensor, own: Overparameterization) -> None:
    """Put ``own`` over ``module.weight``; the neurons become its ``original``, a buffer or a parameter as given."""
    del module.weight
    if isinstance(neurons, nn.Parameter):
        module.register_parameter("weight", neurons)
    else:
        module.register_buffer("weight", neurons)
    parametrize.register_parametrization(module, "weight", own, unsafe=True)
    # torch refuses to pickle a parametrized module because its class exists in this process only; it can be made again
    type(module).__reduce_ex__ = _reduce  # type: ignore[method-assign, assignment]


def unregister(module: nn.Module) -> Tensor:
    """Take the over-parameterization off and return the effective weight; the layer is left without one."""
    weight: Tensor = module.weight.detach().clone()  # type: ignore[operator, union-attr, assignment]
    # torch deletes the property from the class, which a deepcopy of the layer shares: delete it from a class of our own
    kind = type(module)
    module.__class__ = type(
        kind.__name__, kind.__bases__, {k: v for k, v in vars(kind).items() if k not in ("__dict__", "__weakref__")}
    )
    parametrize.remove_parametrizations(module, "weight", leave_parametrized=False)
    del module.weight
    return weight


def _reduce(module: nn.Module, protocol: int) -> tuple[Any, ...]:
    lists = module._modules["parametrizations"]
    assert isinstance(lists, nn.ModuleDict)
    if list(lists) != ["weight"] or len(lists["weight"]) != 1:  # type: ignore[arg-type]
        raise RuntimeError(
            f"only its over-parameterization can be pickled with a {type(module).__name__}, it has others: {list(lists)}"
        )
    state = dict(module.__dict__)
    state["_modules"] = {name: child for name, child in module._modules.items() if name != "parametrizations"}
    stored = lists["weight"]
    return _rebuild, (type(module).__bases__[0], state, stored.original, stored[0])  # type: ignore[index]


def _rebuild(kind: type[nn.Module], state: dict[str, Any], neurons: Tensor, own: Overparameterization) -> nn.Module:
    module = kind.__new__(kind)
    module.__dict__.update(state)
    module.weight = None  # type: ignore[assignment]
    register(module, neurons, own)
    return module
