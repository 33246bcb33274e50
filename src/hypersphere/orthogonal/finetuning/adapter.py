"""A frozen weight W₀ and what is learned about it, for any method of fine-tuning."""

import copy

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ...neurons import has_transposed_weight
from ..maps.map_precision import upcast
from ..parametrization import RotatedWeight, Start
from .tuning_method import TuningMethod
from .weight_change import WeightChange, WeightLayout


class Adapter(RotatedWeight):
    r"""W computed from the rows of a frozen weight W₀ and a :class:`WeightChange` for each task.

    Args:
        method: the method.
        layout: how the neurons lie.
        transposed: whether the weight's columns are the neurons.
        rows: the frozen rows, or None for a quantized weight.
        like: a tensor whose device and precision, float32 at least, the parameters have.
        generator: draws what is random.
    """

    steps: Tensor
    redraws: Tensor

    def __init__(
        self,
        method: TuningMethod,
        layout: WeightLayout,
        *,
        transposed: bool = False,
        rows: Tensor | None = None,
        like: Tensor,
        generator: torch.Generator | None = None,
    ):
        super().__init__()
        self.method, self.layout, self.transposed = method, layout, transposed
        change = method.kind.change.create(method, layout, rows, like, generator)
        if change.redrawable:  # counted in the state_dict; once redrawn, R alone no longer says what was learned
            self.register_buffer("steps", torch.zeros((), dtype=torch.long, device=like.device))
            self.register_buffer("redraws", torch.zeros((), dtype=torch.long, device=like.device))
        self.tasks[self.active] = change

    def add_like(self, task: str, start: Start, generator: torch.Generator | None) -> None:
        """Add a change of the same method that changes nothing yet, where every fine-tuning starts."""
        if start == "normal":
            raise ValueError('start="normal" has no meaning for fine-tuning, which starts from the identity')
        change = copy.deepcopy(self.change)
        change.reset(generator)
        self.tasks[task] = change

    @property
    def change(self) -> WeightChange:
        """The change of the task in use."""
        change = self.tasks[self.active]
        assert isinstance(change, WeightChange)
        return change

    def effective(self, base: Tensor) -> Tensor:
        """Return the weight that acts, computed in float32 or better, in the dtype of W₀."""
        with torch.autocast(base.device.type, enabled=False):
            change = self.change
            wide = upcast(base.dtype, *(p.dtype for p in change.parameters()))
            rows = (base.mT if self.transposed else base).flatten(1).to(wide).unflatten(0, (self.layout.parts, -1))
            weight = change(rows).flatten(0, 1).to(base.dtype)
            # contiguous as W₀ was: another layout would take another path through BLAS, with other roundings
            return weight.mT.contiguous() if self.transposed else weight.contiguous().reshape(base.shape)

    def rotates_inputs(self, module: nn.Module) -> bool:
        """Return whether the layer is a plain Linear or Conv1D and rotating its inputs is faster than the gradient of W."""
        plain = type(module).forward in (nn.Linear.forward, _get_forward_of_conv1d(module))
        # for every sample three passes over the changed numbers, or the product that is the gradient of W
        return plain and self.layout.parts == 1 and 3 * self.change.cost < self.layout.neurons * self.layout.numbers

    def apply_to_inputs(self, module: nn.Module, base: Tensor, inputs: Float[Tensor, "*batch n"]) -> Tensor:
        """Return the layer's outputs without forming W, so that W₀ needs no gradient."""
        rows, bias = base.mT if self.transposed else base, module.bias
        assert bias is None or isinstance(bias, Tensor)
        return self.change.compute_outputs(inputs, rows, bias)

    def error(self) -> float | None:
        """Return the largest entry of |RᵀR − I|, or None if the method is no rotation."""
        return self.change.error()

    def count(self, freedom: bool) -> int:
        """Count the learned numbers, or the dimension of the set that the change moves in."""
        return self.change.count(freedom)

    def extra_repr(self) -> str:
        """Describe the method and the task in use."""
        options = ", ".join(f"{key}={value!r}" for key, value in self.method.options().items())
        return f"{options}, active={self.active!r}"


def _get_forward_of_conv1d(module: nn.Module) -> object:
    for kind in type(module).__mro__:
        if has_transposed_weight(module) and kind.__name__ == "Conv1D":
            return vars(kind)["forward"]
    return None
