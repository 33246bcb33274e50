"""Weights that are computed from a fixed weight and learned rotations: the parametrizations, and how layers get them.

:class:`RotatedWeight` is the contract. :class:`Overparameterization` is the one of orthogonal training; the one of
fine-tuning is :class:`~hypersphere.orthogonal.finetuning.adapter.Adapter`. The functions below register a parametrization
on a layer, find it again and take it off.
"""

import copy
from abc import ABC, abstractmethod
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils import parametrize

from .maps import Map
from .maps.map_precision import upcast

Start: TypeAlias = Literal["usual", "normal", "identity"]
STARTS: tuple[Start, ...] = get_args(Start)
ADAPTER_CHILD = "tuning"  # the child module of a quantized layer that holds its rotation


class RotatedWeight(nn.Module, ABC):
    """A map from a fixed weight V to the effective weight: one rotation per task, one of them active.

    Attributes:
        tasks: the rotations by task.
        active: the task in use.
        plain: what merging restores: the order of the layer's parameters and whether the weight was trained.
        kept: the effective weight while the model is merged with ``keep=True``, otherwise None.
    """

    kept: Tensor | None

    def __init__(self) -> None:
        super().__init__()
        self.tasks = nn.ModuleDict()
        self.active = "default"
        self.plain: dict[str, Any] = {}
        self.register_buffer("kept", None, persistent=False)

    @abstractmethod
    def effective(self, base: Tensor) -> Tensor:
        """Return the effective weight for the fixed weight ``base``."""

    @abstractmethod
    def add_like(self, task: str, start: Start, generator: torch.Generator | None) -> None:
        """Add a rotation of the same kind as the active one under the name ``task``."""

    @abstractmethod
    def error(self) -> float | None:
        """Return the largest entry of |RᵀR − I| for the active task, computed in float64; None if there is no R."""

    @abstractmethod
    def count(self, freedom: bool) -> int:
        """Count the learned numbers of the active task, or the dimension of the set in which its R moves."""

    def forward(self, base: Tensor) -> Tensor:
        """Return the kept weight of a merged model, otherwise compute the effective weight."""
        if self.kept is None:
            return self.effective(base)
        self.refuse_training()
        return self.kept

    def refuse_training(self) -> None:
        """Raise if a merged layer is trained: its rotation would silently get no gradient."""
        if self.training and torch.is_grad_enabled():
            raise RuntimeError("the model is merged with keep=True: unmerge(model) before it is trained further")

    def rotates_inputs(self, module: nn.Module) -> bool:
        """Whether ``module`` rotates its inputs instead of its weight; :meth:`apply_to_inputs` is then its forward."""
        return False

    def apply_to_inputs(self, module: nn.Module, base: Tensor, inputs: Tensor) -> Tensor:
        """Compute the layer's outputs with the rotation applied to the inputs."""
        raise TypeError(f"{type(self).__name__} does not rotate inputs")


class LearnedMatrix(nn.Module):
    """One R: a map and the free matrix ``raw`` it is computed from, ``(n, n)`` or one per independent block."""

    def __init__(
        self, map: Map, shape: tuple[int, ...], start: Start, like: Tensor, generator: torch.Generator | None = None
    ):
        super().__init__()
        self.map = map
        empty = torch.empty(shape, dtype=upcast(like.dtype), device=like.device)
        first = {"usual": map.start, "normal": map.normal}
        self.raw = nn.Parameter(first[start](empty, generator) if start in first else map.identity(empty))

    def forward(self, rows: Float[Tensor, "*blocks neurons n"]) -> Float[Tensor, "*blocks neurons n"]:
        """Return R v for every row v, in the rows' dtype."""
        return self.map.act(self.raw.to(rows.dtype), rows)

    def matrix(self) -> Float[Tensor, "*blocks n n"]:
        """Return R in float32 or better."""
        with torch.autocast(self.raw.device.type, enabled=False):
            return self.map(self.raw.to(upcast(self.raw.dtype)))


class Overparameterization(RotatedWeight):
    r"""W = V Rᵀ over the rows of a layer's weight, w_i = R v_i (eq. 7.1).

    ``blocks`` cuts every neuron along its channels: R = Diag(R⁽¹⁾, …, R⁽ᵏ⁾) (F.34), or the same R⁽¹⁾ k times (F.33).
    Each task has its own R over the same V (F.8).
    """

    def __init__(self, dim: int, *, blocks: int = 1, share: bool = False):
        super().__init__()
        self.blocks, self.share = blocks, share
        self.shape = (dim // blocks,) * 2 if share or blocks == 1 else (blocks, dim // blocks, dim // blocks)

    def add(self, task: str, map: Map, start: Start, like: Tensor, generator: torch.Generator | None = None) -> None:
        """Add a new R over the same neurons."""
        self.tasks[task] = LearnedMatrix(map, self.shape, start, like, generator)

    def add_like(self, task: str, start: Start, generator: torch.Generator | None) -> None:
        """Add an R computed by a copy of the active task's map."""
        self.add(task, copy.deepcopy(self.rotation.map), start, self.rotation.raw.detach(), generator)

    @property
    def rotation(self) -> LearnedMatrix:
        """The R of the active task."""
        rotation = self.tasks[self.active]
        assert isinstance(rotation, LearnedMatrix)
        return rotation

    def effective(self, neurons: Float[Tensor, "neurons *dim"]) -> Float[Tensor, "neurons *dim"]:  # type: ignore[override]
        """Return the effective weight, computed in float32 or better, in the neurons' dtype."""
        with torch.autocast(neurons.device.type, enabled=False):
            rows = neurons.flatten(1).to(upcast(neurons.dtype, self.rotation.raw.dtype))
            return self._rotate(rows).reshape(neurons.shape).to(neurons.dtype)

    def error(self) -> float:
        """Return the largest entry of |RᵀR − I|."""
        return max_orthogonality_error(self.rotation.matrix())

    def count(self, freedom: bool) -> int:
        """Count the entries of X, or the dimension of the set in which R moves."""
        numbers, n = self.rotation.raw.numel(), self.shape[-1]
        return self.rotation.map.freedom(n) * (numbers // n**2) if freedom else numbers

    def _rotate(self, rows: Tensor) -> Tensor:
        n = self.shape[-1]
        if len(self.shape) == 2:  # one matrix; if all blocks share it, each block is simply another row
            return self.rotation(rows.reshape(-1, n)).reshape(rows.shape)
        blocks = rows.reshape(-1, self.blocks, n).transpose(0, 1)
        return self.rotation(blocks).transpose(0, 1).reshape(rows.shape)

    def extra_repr(self) -> str:
        """Describe the blocks and the active task."""
        return f"blocks={self.blocks}, share={self.share}, active={self.active!r}"


class Site(NamedTuple):
    """The place of a parametrization: the layer, the name of its parameter and the parametrization itself."""

    module: nn.Module
    parameter: str
    own: RotatedWeight


@torch.no_grad()
def max_orthogonality_error(r: Float[Tensor, "*batch n n"]) -> float:
    """Return the largest entry of |RᵀR − I|, with the product taken in float64."""
    r = r.double()
    return float((r.mT @ r - torch.eye(r.shape[-1], dtype=r.dtype, device=r.device)).abs().max())


def find_rotated(model: nn.Module) -> dict[str, Site]:
    """Find every rotated weight; a key is the layer's name, followed by the parameter's unless that is ``weight``."""
    found: dict[str, Site] = {}
    for name, module in model.named_modules():
        held = module._modules.get(ADAPTER_CHILD)
        if isinstance(held, RotatedWeight):
            found[name] = Site(module, "weight", held)
        for parameter in module.parametrizations if parametrize.is_parametrized(module) else ():  # type: ignore[union-attr]
            if (own := find_parametrization(module, parameter)) is not None:
                label = name if parameter == "weight" else f"{name}.{parameter}".lstrip(".")
                found[label] = Site(module, parameter, own)
    return found


def find_parametrization(module: nn.Module, parameter: str = "weight") -> RotatedWeight | None:
    """Return the parametrization of this layer's parameter, or None if it has none."""
    if not parametrize.is_parametrized(module, parameter):
        return None
    first = module.parametrizations[parameter][0]  # type: ignore[index]
    return first if isinstance(first, RotatedWeight) else None


def require_rotated(model: nn.Module) -> dict[str, Site]:
    """Return :func:`find_rotated`, or raise a ValueError if no weight is rotated."""
    found = find_rotated(model)
    if not found:
        raise ValueError(
            f"{type(model).__name__} has no over-parameterized or finetuned layer: "
            "call overparameterize(model) or finetune(model) first"
        )
    return found


def require_overparameterized(model: nn.Module) -> dict[str, Overparameterization]:
    """Return the over-parameterizations by layer name, or raise a ValueError if there are none."""
    found = {name: site.own for name, site in require_rotated(model).items()}
    own = {name: o for name, o in found.items() if isinstance(o, Overparameterization)}
    if not own:
        raise ValueError(f"{type(model).__name__} has no over-parameterized layer: call overparameterize(model) first")
    return own


def register(module: nn.Module, parameter: str, base: Tensor, own: RotatedWeight) -> None:
    """Parametrize a parameter by ``own``; ``base`` becomes its ``original``, a buffer or a parameter as given."""
    delattr(module, parameter)
    if isinstance(base, nn.Parameter):
        module.register_parameter(parameter, base)
    else:
        module.register_buffer(parameter, base)
    parametrize.register_parametrization(module, parameter, own, unsafe=True)
    kind = type(module)
    # torch refuses to pickle a parametrized module, because its class exists in this process only. The class can be
    # rebuilt from the plain one, which is what _reduce does.
    kind.__reduce_ex__ = _reduce  # type: ignore[method-assign, assignment]
    if own.rotates_inputs(module):
        kind.forward = _forward  # type: ignore[method-assign, assignment]


def unregister(module: nn.Module, parameter: str) -> Tensor:
    """Remove the parametrization and return the fixed weight; the layer is left without the parameter."""
    base = fixed_weight(module, parameter)
    # torch deletes the property from the class, which a deepcopy of the layer shares. Give this layer its own class first.
    kind = type(module)
    module.__class__ = type(
        kind.__name__, kind.__bases__, {k: v for k, v in vars(kind).items() if k not in ("__dict__", "__weakref__")}
    )
    parametrize.remove_parametrizations(module, parameter, leave_parametrized=False)
    delattr(module, parameter)
    return base


def fixed_weight(module: nn.Module, parameter: str = "weight") -> Tensor:
    """Return the weight under the parametrization."""
    base = module.parametrizations[parameter].original  # type: ignore[index, union-attr]
    assert isinstance(base, Tensor)
    return base


def _forward(module: nn.Module, inputs: Tensor) -> Tensor:
    """Forward pass of a layer that rotates its inputs."""
    own, base = find_parametrization(module), fixed_weight(module)
    assert own is not None
    if own.kept is not None or len(module.parametrizations["weight"]) > 1:  # type: ignore[index, arg-type]
        return type(module).__bases__[0].forward(module, inputs)  # type: ignore[no-any-return, attr-defined]
    return own.apply_to_inputs(module, base, inputs)


def _reduce(module: nn.Module, protocol: int) -> tuple[Any, ...]:
    lists = module._modules["parametrizations"]
    assert isinstance(lists, nn.ModuleDict)
    stored = {}
    for parameter in lists:
        own = find_parametrization(module, parameter)
        if own is None or len(lists[parameter]) != 1:  # type: ignore[arg-type]
            raise RuntimeError(
                f"only its rotation can be pickled with a {type(module).__name__}, it has others: {list(lists)}"
            )
        stored[parameter] = (lists[parameter].original, own)
    state = dict(module.__dict__)
    state["_modules"] = {name: child for name, child in module._modules.items() if name != "parametrizations"}
    return _rebuild, (type(module).__bases__[0], state, stored)


def _rebuild(
    kind: type[nn.Module], state: dict[str, Any], stored: dict[str, tuple[Tensor, RotatedWeight]]
) -> nn.Module:
    module = kind.__new__(kind)
    module.__dict__.update(state)
    for parameter, (base, own) in stored.items():
        setattr(module, parameter, None)
        register(module, parameter, base, own)
    return module
