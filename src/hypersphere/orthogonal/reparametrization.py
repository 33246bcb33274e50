"""One mechanism for every weight that is computed from fixed neurons and a learned rotation: put on, found, taken off."""

from abc import ABC, abstractmethod
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

Start: TypeAlias = Literal["usual", "normal", "identity"]
STARTS: tuple[Start, ...] = get_args(Start)
HOLDER = "tuning"  # the child of a quantized layer that holds its rotation


class Reparametrization(nn.Module, ABC):
    """What stands between a fixed weight V and the weight that acts: rotations by task, one of them in use.

    ``plain`` is what merging restores: the order of the parameters and whether the weight was trained. ``kept`` is the
    acting weight while the model is merged with ``keep=True``, else None.
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
        """The weight that acts, from the fixed one."""

    @abstractmethod
    def add_like(self, task: str, start: Start, generator: torch.Generator | None) -> None:
        """Another rotation of the same kind as that of the task in use."""

    @abstractmethod
    def error(self) -> float:
        """The largest entry of |RᵀR − I| for the task in use, in float64."""

    @abstractmethod
    def count(self, freedom: bool) -> int:
        """How many numbers the task in use learns, or the dimension of the set that its R moves in."""

    def forward(self, base: Tensor) -> Tensor:
        """The weight that acts: the kept one of a merged model, else a fresh one."""
        if self.kept is None:
            return self.effective(base)
        self.refuse_training()
        return self.kept

    def refuse_training(self) -> None:
        """A merged layer gives its rotation no gradient, which must not pass unseen."""
        if self.training and torch.is_grad_enabled():
            raise RuntimeError("the model is merged with keep=True: unmerge(model) before it is trained further")

    def on_inputs(self, module: nn.Module) -> bool:
        """Whether ``module`` may rotate its inputs instead of its weight; :meth:`turned` is its forward pass then."""
        return False

    def turned(self, module: nn.Module, base: Tensor, inputs: Tensor) -> Tensor:
        """The layer's outputs with the rotation applied to the inputs."""
        raise TypeError(f"{type(self).__name__} does not rotate inputs")


class Site(NamedTuple):
    """Where a reparametrization is: the layer, the name of its parameter and the reparametrization itself."""

    module: nn.Module
    parameter: str
    own: Reparametrization


def find_all(model: nn.Module) -> dict[str, Site]:
    """Every reparametrized weight by name: the layer's, with the parameter's behind it unless that is ``weight``."""
    found: dict[str, Site] = {}
    for name, module in model.named_modules():
        held = module._modules.get(HOLDER)
        if isinstance(held, Reparametrization):
            found[name] = Site(module, "weight", held)
        for parameter in module.parametrizations if parametrize.is_parametrized(module) else ():  # type: ignore[union-attr]
            if (own := find(module, parameter)) is not None:
                label = name if parameter == "weight" else f"{name}.{parameter}".lstrip(".")
                found[label] = Site(module, parameter, own)
    return found


def find(module: nn.Module, parameter: str = "weight") -> Reparametrization | None:
    """The reparametrization of this layer's parameter, if it has one."""
    if not parametrize.is_parametrized(module, parameter):
        return None
    first = module.parametrizations[parameter][0]  # type: ignore[index]
    return first if isinstance(first, Reparametrization) else None


def reparametrized(model: nn.Module) -> dict[str, Site]:
    """:func:`find_all`, where none at all is an error."""
    found = find_all(model)
    if not found:
        raise ValueError(
            f"{type(model).__name__} has no over-parameterized or finetuned layer: "
            "call overparameterize(model) or finetune(model) first"
        )
    return found


def register(module: nn.Module, parameter: str, base: Tensor, own: Reparametrization) -> None:
    """Put ``own`` over a parameter; ``base`` becomes its ``original``, a buffer or a parameter as given."""
    delattr(module, parameter)
    if isinstance(base, nn.Parameter):
        module.register_parameter(parameter, base)
    else:
        module.register_buffer(parameter, base)
    parametrize.register_parametrization(module, parameter, own, unsafe=True)
    kind = type(module)
    # torch refuses to pickle a parametrized module because its class exists in this process only; it can be made again
    kind.__reduce_ex__ = _reduce  # type: ignore[method-assign, assignment]
    if own.on_inputs(module):
        kind.forward = _forward  # type: ignore[method-assign, assignment]


def unregister(module: nn.Module, parameter: str) -> Tensor:
    """Take the reparametrization off and return the fixed weight; the layer is left without the parameter."""
    base = fixed_weight(module, parameter)
    # torch deletes the property from the class, which a deepcopy of the layer shares: delete it from a class of our own
    kind = type(module)
    module.__class__ = type(
        kind.__name__, kind.__bases__, {k: v for k, v in vars(kind).items() if k not in ("__dict__", "__weakref__")}
    )
    parametrize.remove_parametrizations(module, parameter, leave_parametrized=False)
    delattr(module, parameter)
    return base


def fixed_weight(module: nn.Module, parameter: str = "weight") -> Tensor:
    """The weight under the reparametrization."""
    base = module.parametrizations[parameter].original  # type: ignore[index, union-attr]
    assert isinstance(base, Tensor)
    return base


def _forward(module: nn.Module, inputs: Tensor) -> Tensor:
    """The forward pass of a layer that rotates its inputs."""
    own, base = find(module), fixed_weight(module)
    assert own is not None
    if own.kept is not None or len(module.parametrizations["weight"]) > 1:  # type: ignore[index, arg-type]
        return type(module).__bases__[0].forward(module, inputs)  # type: ignore[no-any-return, attr-defined]
    return own.turned(module, base, inputs)


def _reduce(module: nn.Module, protocol: int) -> tuple[Any, ...]:
    lists = module._modules["parametrizations"]
    assert isinstance(lists, nn.ModuleDict)
    stored = {}
    for parameter in lists:
        own = find(module, parameter)
        if own is None or len(lists[parameter]) != 1:  # type: ignore[arg-type]
            raise RuntimeError(
                f"only its rotation can be pickled with a {type(module).__name__}, it has others: {list(lists)}"
            )
        stored[parameter] = (lists[parameter].original, own)
    state = dict(module.__dict__)
    state["_modules"] = {name: child for name, child in module._modules.items() if name != "parametrizations"}
    return _rebuild, (type(module).__bases__[0], state, stored)


def _rebuild(
    kind: type[nn.Module], state: dict[str, Any], stored: dict[str, tuple[Tensor, Reparametrization]]
) -> nn.Module:
    module = kind.__new__(kind)
    module.__dict__.update(state)
    for parameter, (base, own) in stored.items():
        setattr(module, parameter, None)
        register(module, parameter, base, own)
    return module
