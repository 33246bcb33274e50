"""The parametrization of a weight by a frozen weight W₀ and the learned change of each task."""

import copy

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ...geometry import accumulation_dtype, disable_autocast
from ...neurons import has_transposed_weight
from ..parametrization import RotatedWeight, Start
from .tuning_method import TuningMethod
from .weight_change import WeightChange, WeightLayout


class Adapter(RotatedWeight):
    r"""W computed from the rows of a frozen weight W₀ and a :class:`WeightChange` for each task.

    Args:
        method: The method and its options.
        layout: The arrangement of the neurons.
        transposed: Whether the columns of the weight are the neurons.
        rows: The frozen rows, or None for a quantized weight.
        like: A tensor with the device of the parameters; their dtype is that of ``like``, but at least float32.
        generator: Random generator of the initialization.
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
        change = method.kind.change(method, layout, rows, like, generator)
        if change.redrawable:  # part of the state_dict; after a redraw, R is only a part of what was learned
            self.register_buffer("steps", torch.zeros((), dtype=torch.long, device=like.device))
            self.register_buffer("redraws", torch.zeros((), dtype=torch.long, device=like.device))
        self.tasks[self.active] = change

    def add_like(self, task: str, start: Start, generator: torch.Generator | None) -> None:
        """Add a task whose change has the same method and is the identity."""
        if start == "normal":
            raise ValueError('start="normal" has no meaning for fine-tuning, which starts from the identity')
        change = copy.deepcopy(self.change)
        change.reset(generator)
        self.tasks[task] = change

    @property
    def change(self) -> WeightChange:
        """The change of the active task."""
        change = self.tasks[self.active]
        assert isinstance(change, WeightChange)
        return change

    def effective(self, base: Tensor) -> Tensor:
        """Return the effective weight in the dtype of W₀, computed in float32 or better."""
        with disable_autocast(base.device.type):
            change = self.change
            wide = accumulation_dtype(base, *change.parameters())
            rows = (base.mT if self.transposed else base).flatten(1).to(wide).unflatten(0, (self.layout.parts, -1))
            weight = change(rows).flatten(0, 1).to(base.dtype)
            # Contiguous like W₀, because BLAS rounds differently for other layouts.
            return weight.mT.contiguous() if self.transposed else weight.contiguous().reshape(base.shape)

    def rotates_inputs(self, module: nn.Module) -> bool:
        """Return whether the layer is a plain Linear or Conv1D and rotating its inputs is faster than the gradient of W."""
        is_plain = type(module).forward in (nn.Linear.forward, _get_conv1d_forward(module))
        # Rotating the inputs takes about three passes per sample. The gradient of W takes one product of its size.
        return is_plain and self.layout.parts == 1 and 3 * self.change.cost < self.layout.neurons * self.layout.numbers

    def apply_to_inputs(self, module: nn.Module, base: Tensor, inputs: Float[Tensor, "*batch n"]) -> Tensor:
        """Return the outputs of the layer without forming W, so that the gradient of W is never computed."""
        rows, bias = base.mT if self.transposed else base, module.bias
        assert bias is None or isinstance(bias, Tensor)
        return self.change.compute_outputs(inputs, rows, bias)

    def error(self) -> float | None:
        """Return the largest entry of |RᵀR − I|, or None if the method is not a rotation."""
        return self.change.error()

    def count(self, freedom: bool) -> int:
        """Count the learned numbers, or return the dimension of the set of possible changes."""
        return self.change.count(freedom)

    def extra_repr(self) -> str:
        """Describe the method and the active task."""
        options = ", ".join(f"{key}={value!r}" for key, value in self.method.options().items())
        return f"{options}, active={self.active!r}"


def _get_conv1d_forward(module: nn.Module) -> object:
    """Return the forward of Conv1D of transformers if the module is one, otherwise None."""
    for kind in type(module).__mro__:
        if has_transposed_weight(module) and kind.__name__ == "Conv1D":
            return vars(kind)["forward"]
    return None
