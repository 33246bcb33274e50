"""Parametrizations that compute a weight from a fixed weight and learned rotations.

:class:`RotatedWeight` is the interface. Orthogonal training uses :class:`Overparameterization`, fine-tuning uses
:class:`~hypersphere.orthogonal.finetuning.adapter.Adapter`. The functions register a parametrization on a layer, find it
and remove it.
"""

import copy
from abc import ABC, abstractmethod
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils import parametrize

from ..geometry import accumulation_dtype, disable_autocast
from .maps import Map

Start: TypeAlias = Literal["usual", "normal", "identity"]
STARTS: tuple[Start, ...] = get_args(Start)
ADAPTER_CHILD = "tuning"  # the child module of a quantized layer that holds its rotation


class RotatedWeight(nn.Module, ABC):
    """A map from a fixed weight V to the effective weight, with one rotation per task.

    Attributes:
        tasks: The rotation of each task.
        active: The name of the active task.
        original_layer: The order of the layer's parameters and whether the weight was trainable; merging restores both.
        merged_weight: The effective weight while the model is merged with ``keep=True``, otherwise None.
    """

    merged_weight: Tensor | None

    def __init__(self) -> None:
        super().__init__()
        self.tasks = nn.ModuleDict()
        self.active = "default"
        self.original_layer: dict[str, Any] = {}
        self.register_buffer("merged_weight", None, persistent=False)

    @abstractmethod
    def effective(self, base: Tensor) -> Tensor:
        """Return the effective weight for the fixed weight ``base``."""

    @abstractmethod
    def add_like(self, task: str, start: Start, generator: torch.Generator | None) -> None:
        """Add the task ``task``, with a new rotation of the same kind as the active one."""

    @abstractmethod
    def error(self) -> float | None:
        """Return the largest entry of |RᵀR − I| of the active task, computed in float64, or None without an R."""

    @abstractmethod
    def count(self, freedom: bool) -> int:
        """Count the learned parameters of the active task, or return the dimension of the set of its possible R."""

    def forward(self, base: Tensor) -> Tensor:
        """Return the effective weight, or the stored one while the model is merged."""
        if self.merged_weight is None:
            return self.effective(base)
        self.refuse_training()
        return self.merged_weight

    def refuse_training(self) -> None:
        """Raise a RuntimeError if a merged layer is trained, because its rotation would get no gradient."""
        if self.training and torch.is_grad_enabled():
            raise RuntimeError("the model is merged with keep=True: unmerge(model) before it is trained further")

    def rotates_inputs(self, module: nn.Module) -> bool:
        """Return whether ``module`` rotates its inputs instead of its weight; its forward is then :meth:`apply_to_inputs`."""
        return False

    def apply_to_inputs(self, module: nn.Module, base: Tensor, inputs: Tensor) -> Tensor:
        """Compute the layer's outputs with the rotation applied to the inputs."""
        raise TypeError(f"{type(self).__name__} does not rotate inputs")


class LearnedMatrix(nn.Module):
    """A learned R: a map and its unconstrained matrix ``raw`` of shape ``(n, n)``, or ``(blocks, n, n)``."""

    def __init__(
        self, map: Map, shape: tuple[int, ...], start: Start, like: Tensor, generator: torch.Generator | None = None
    ):
        super().__init__()
        self.map = map
        empty = torch.empty(shape, dtype=accumulation_dtype(like), device=like.device)
        first = {"usual": map.start, "normal": map.normal}
        self.raw = nn.Parameter(first[start](empty, generator) if start in first else map.identity(empty))

    def forward(self, rows: Float[Tensor, "*blocks neurons n"]) -> Float[Tensor, "*blocks neurons n"]:
        """Return R v for every row v, in the rows' dtype."""
        return self.map.act(self.raw.to(rows.dtype), rows)

    def matrix(self) -> Float[Tensor, "*blocks n n"]:
        """Return R in float32 or better."""
        with disable_autocast(self.raw.device.type):
            return self.map(self.raw.to(accumulation_dtype(self.raw)))


class Overparameterization(RotatedWeight):
    r"""W = V Rᵀ over the rows of a layer's weight, w_i = R v_i (eq. 7.1).

    With ``blocks`` = k, R is block-diagonal along the channels of a neuron: R = Diag(R⁽¹⁾, …, R⁽ᵏ⁾) (F.34), or k times
    the same R⁽¹⁾ with ``share`` (F.33). Each task learns a separate R for the same V (F.8).
    """

    def __init__(self, dim: int, *, blocks: int = 1, share: bool = False):
        super().__init__()
        self.blocks, self.share = blocks, share
        self.shape = (dim // blocks,) * 2 if share or blocks == 1 else (blocks, dim // blocks, dim // blocks)

    def add(self, task: str, map: Map, start: Start, like: Tensor, generator: torch.Generator | None = None) -> None:
        """Add a task with a new R for the same neurons."""
        self.tasks[task] = LearnedMatrix(map, self.shape, start, like, generator)

    def add_like(self, task: str, start: Start, generator: torch.Generator | None) -> None:
        """Add a task whose R is computed by a copy of the active task's map."""
        self.add(task, copy.deepcopy(self.rotation.map), start, self.rotation.raw.detach(), generator)

    @property
    def rotation(self) -> LearnedMatrix:
        """The R of the active task."""
        rotation = self.tasks[self.active]
        assert isinstance(rotation, LearnedMatrix)
        return rotation

    def effective(self, neurons: Float[Tensor, "neurons *dim"]) -> Float[Tensor, "neurons *dim"]:  # type: ignore[override]
        """Return V Rᵀ in the dtype of the neurons, computed in float32 or better."""
        with disable_autocast(neurons.device.type):
            rows = neurons.flatten(1).to(accumulation_dtype(neurons, self.rotation.raw))
            return self._rotate(rows).reshape(neurons.shape).to(neurons.dtype)

    def error(self) -> float:
        """Return the largest entry of |RᵀR − I| of the active task."""
        return max_orthogonality_error(self.rotation.matrix())

    def count(self, freedom: bool) -> int:
        """Count the entries of X, or return the dimension of the set of possible R."""
        entries, n = self.rotation.raw.numel(), self.shape[-1]
        return self.rotation.map.freedom(n) * (entries // n**2) if freedom else entries

    def _rotate(self, rows: Tensor) -> Tensor:
        n = self.shape[-1]
        if len(self.shape) == 2:  # one matrix; shared blocks are additional rows
            return self.rotation(rows.reshape(-1, n)).reshape(rows.shape)
        blocks = rows.reshape(-1, self.blocks, n).transpose(0, 1)
        return self.rotation(blocks).transpose(0, 1).reshape(rows.shape)

    def extra_repr(self) -> str:
        """Describe the blocks and the active task."""
        return f"blocks={self.blocks}, share={self.share}, active={self.active!r}"


class Site(NamedTuple):
    """A layer, the name of its parametrized parameter, and the parametrization."""

    module: nn.Module
    parameter: str
    parametrization: RotatedWeight


@torch.no_grad()
def max_orthogonality_error(r: Float[Tensor, "*batch n n"]) -> float:
    """Return the largest entry of |RᵀR − I|, computed in float64."""
    r = r.double()
    return float((r.mT @ r - torch.eye(r.shape[-1], dtype=r.dtype, device=r.device)).abs().max())


def find_rotated(model: nn.Module) -> dict[str, Site]:
    """Return all rotated weights; a key is the name of the layer, plus that of the parameter unless it is ``weight``."""
    sites: dict[str, Site] = {}
    for name, module in model.named_modules():
        child = module._modules.get(ADAPTER_CHILD)
        if isinstance(child, RotatedWeight):
            sites[name] = Site(module, "weight", child)
        for parameter in module.parametrizations if parametrize.is_parametrized(module) else ():  # type: ignore[union-attr]
            if (parametrization := find_parametrization(module, parameter)) is not None:
                label = name if parameter == "weight" else f"{name}.{parameter}".lstrip(".")
                sites[label] = Site(module, parameter, parametrization)
    return sites


def find_parametrization(module: nn.Module, parameter: str = "weight") -> RotatedWeight | None:
    """Return the rotation parametrization of a parameter, or None."""
    if not parametrize.is_parametrized(module, parameter):
        return None
    first = module.parametrizations[parameter][0]  # type: ignore[index]
    return first if isinstance(first, RotatedWeight) else None


def require_rotated(model: nn.Module) -> dict[str, Site]:
    """Return the result of :func:`find_rotated`; raise a ValueError if it is empty."""
    sites = find_rotated(model)
    if not sites:
        raise ValueError(
            f"{type(model).__name__} has no over-parameterized or finetuned layer: "
            "call overparameterize(model) or finetune(model) first"
        )
    return sites


def require_overparameterized(model: nn.Module) -> dict[str, Overparameterization]:
    """Return the over-parameterizations by layer name; raise a ValueError if there are none."""
    parametrizations = {name: site.parametrization for name, site in require_rotated(model).items()}
    overparameterized = {name: p for name, p in parametrizations.items() if isinstance(p, Overparameterization)}
    if not overparameterized:
        raise ValueError(f"{type(model).__name__} has no over-parameterized layer: call overparameterize(model) first")
    return overparameterized


def register(module: nn.Module, parameter: str, base: Tensor, parametrization: RotatedWeight) -> None:
    """Parametrize a parameter of a layer; ``base`` becomes its ``original``, as a buffer or a parameter."""
    delattr(module, parameter)
    if isinstance(base, nn.Parameter):
        module.register_parameter(parameter, base)
    else:
        module.register_buffer(parameter, base)
    parametrize.register_parametrization(module, parameter, parametrization, unsafe=True)
    kind = type(module)
    # torch refuses to pickle a parametrized module, because its class exists only in this process. _reduce rebuilds this
    # class from the original one.
    kind.__reduce_ex__ = _reduce  # type: ignore[method-assign, assignment]
    if parametrization.rotates_inputs(module):
        kind.forward = _forward  # type: ignore[method-assign, assignment]


def unregister(module: nn.Module, parameter: str) -> Tensor:
    """Remove the parametrization and its parameter from the layer, and return the fixed weight."""
    base = get_fixed_weight(module, parameter)
    # torch deletes the property from the class, which deep copies of the layer share. Give this layer a separate class.
    kind = type(module)
    module.__class__ = type(
        kind.__name__, kind.__bases__, {k: v for k, v in vars(kind).items() if k not in ("__dict__", "__weakref__")}
    )
    parametrize.remove_parametrizations(module, parameter, leave_parametrized=False)
    delattr(module, parameter)
    return base


def get_fixed_weight(module: nn.Module, parameter: str = "weight") -> Tensor:
    """Return the fixed weight of a parametrized parameter."""
    base = module.parametrizations[parameter].original  # type: ignore[index, union-attr]
    assert isinstance(base, Tensor)
    return base


def _forward(module: nn.Module, inputs: Tensor) -> Tensor:
    """Compute the outputs of a layer that rotates its inputs."""
    parametrization, base = find_parametrization(module), get_fixed_weight(module)
    assert parametrization is not None
    if parametrization.merged_weight is not None or len(module.parametrizations["weight"]) > 1:  # type: ignore[index, arg-type]
        return type(module).__bases__[0].forward(module, inputs)  # type: ignore[no-any-return, attr-defined]
    return parametrization.apply_to_inputs(module, base, inputs)


def _reduce(module: nn.Module, protocol: int) -> tuple[Any, ...]:
    lists = module._modules["parametrizations"]
    assert isinstance(lists, nn.ModuleDict)
    stored = {}
    for parameter in lists:
        parametrization = find_parametrization(module, parameter)
        if parametrization is None or len(lists[parameter]) != 1:  # type: ignore[arg-type]
            raise RuntimeError(
                f"a {type(module).__name__} can only be pickled if its only parametrization is its rotation, and it has others: "
                f"{list(lists)}"
            )
        stored[parameter] = (lists[parameter].original, parametrization)
    state = dict(module.__dict__)
    state["_modules"] = {name: child for name, child in module._modules.items() if name != "parametrizations"}
    return _rebuild, (type(module).__bases__[0], state, stored)


def _rebuild(
    kind: type[nn.Module], state: dict[str, Any], stored: dict[str, tuple[Tensor, RotatedWeight]]
) -> nn.Module:
    module = kind.__new__(kind)
    module.__dict__.update(state)
    for parameter, (base, parametrization) in stored.items():
        setattr(module, parameter, None)
        register(module, parameter, base, parametrization)
    return module
