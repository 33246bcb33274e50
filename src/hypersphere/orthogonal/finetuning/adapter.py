"""A frozen weight W₀ and what is learned about it: R on the side of the inputs, for POET one on either side."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ...neurons import has_transposed_weight
from ..maps.map_precision import upcast
from ..parametrization import RotatedWeight, Start
from .block_rotation import BlockRotation, PermutedRotation
from .rotated_linear import rotated_linear
from .rotation import Rotation
from .tuning_method import TuningMethod


class RotationPair(nn.Module):
    """The rotations of one task: of the neurons' space, and of the neurons among each other or None."""

    def __init__(self, inputs: Rotation, outputs: Rotation | None):
        super().__init__()
        self.inputs, self.outputs = inputs, outputs


class Adapter(RotatedWeight):
    r"""W = W₀Rᵀ over the rows of a frozen weight, w_i = R w⁰_i as in OPT (7.1), or W = R' W₀ Rᵀ (POET).

    Args:
        method: the kind of rotation.
        shape: neurons and the numbers of each.
        parts: how many sets of neurons have an R of their own; 3 for the fused query, key and value of an attention.
        groups: how many sets of neurons are mixed among themselves only by R', those of a grouped convolution.
        transposed: whether the weight's columns are the neurons.
        like: a tensor whose device and precision, float32 at least, the parameters have.
        generator: draws what is random.
    """

    steps: Tensor
    redraws: Tensor

    def __init__(
        self,
        method: TuningMethod,
        shape: tuple[int, int],
        *,
        parts: int = 1,
        groups: int = 1,
        transposed: bool = False,
        like: Tensor,
        generator: torch.Generator | None = None,
    ):
        super().__init__()
        self.method, self.shape, self.parts, self.groups, self.transposed = method, shape, parts, groups, transposed
        if method.name == "poet":  # counted in the state_dict; once redrawn, R alone no longer says what was learned
            self.register_buffer("steps", torch.zeros((), dtype=torch.long, device=like.device))
            self.register_buffer("redraws", torch.zeros((), dtype=torch.long, device=like.device))
        self._add(self.active, like, generator)

    def _add(self, task: str, like: Tensor, generator: torch.Generator | None) -> None:
        neurons, n = self.shape
        inputs = self.method.create_rotation(self.parts, n, like, generator)
        two_sided = self.method.name == "poet" and self.method.explain_misfit(neurons // self.groups) is None
        outputs = (
            self.method.create_rotation(self.groups, neurons // self.groups, like, generator) if two_sided else None
        )
        self.tasks[task] = RotationPair(inputs, outputs)

    def add_like(self, task: str, start: Start, generator: torch.Generator | None) -> None:
        """Rotations at the identity, where every fine-tuning starts."""
        if start == "normal":
            raise ValueError('start="normal" has no meaning for fine-tuning, which starts from the identity')
        self._add(task, self.rotations.inputs.raw.detach(), generator)

    @property
    def rotations(self) -> RotationPair:
        """The rotations of the task in use."""
        turns = self.tasks[self.active]
        assert isinstance(turns, RotationPair)
        return turns

    def effective(self, base: Tensor) -> Tensor:
        """The weight that acts, computed in float32 or better, in the dtype of W₀."""
        with torch.autocast(base.device.type, enabled=False):
            turns = self.rotations
            rows = (base.mT if self.transposed else base).flatten(1)
            rows = rows.to(upcast(base.dtype, turns.inputs.raw.dtype)).unflatten(0, (self.parts, -1))
            rows = turns.inputs(rows)
            if turns.outputs is not None:
                columns = rows.flatten(0, 1).unflatten(0, (self.groups, -1)).mT
                rows = turns.outputs(columns).mT
            weight = rows.flatten(0, 1).to(base.dtype)
            # contiguous as W₀ was: another layout would take another path through BLAS, with other roundings
            return weight.mT.contiguous() if self.transposed else weight.contiguous().reshape(base.shape)

    def rotates_inputs(self, module: nn.Module) -> bool:
        """For a plain Linear layer or Conv1D, where turning the activations costs less than W's gradient would."""
        plain = type(module).forward in (nn.Linear.forward, _forward_of_conv1d(module))
        (neurons, n), turns = self.shape, self.rotations
        cost = turns.inputs.cost * n + (turns.outputs.cost * neurons if turns.outputs is not None else 0)
        # for every token three passes over the turned numbers, or the product that is the gradient of W
        return plain and self.parts == 1 and 3 * cost < neurons * n

    def apply_to_inputs(self, module: nn.Module, base: Tensor, inputs: Float[Tensor, "*batch n"]) -> Tensor:
        """W₀(Rᵀx) + b: W itself is not formed, and W₀ needs no gradient."""
        rows, bias = base.mT if self.transposed else base, module.bias
        assert bias is None or isinstance(bias, Tensor)
        turns = self.rotations
        turn: Rotation = turns.inputs
        after: Rotation | None = turns.outputs
        exact = isinstance(turn, BlockRotation) and turn.terms is None and not isinstance(turn, PermutedRotation)
        if (
            isinstance(turn, BlockRotation)
            and exact
            and inputs.dtype == rows.dtype == upcast(rows.dtype)
            and not _autocast(inputs)
        ):
            return rotated_linear(inputs, rows, bias, turn.blocks())
        x = turn(inputs.reshape(1, -1, self.shape[1]), transpose=True).reshape(inputs.shape)
        if after is None:
            return nn.functional.linear(x, rows, bias)
        y: Tensor = nn.functional.linear(x, rows)
        y = after(y.reshape(1, -1, self.shape[0])).reshape(y.shape)
        return y if bias is None else y + bias.to(y.dtype)

    def error(self) -> float:
        """The largest entry of |RᵀR − I| of either side."""
        turns = self.rotations
        return max(turn.error() for turn in (turns.inputs, turns.outputs) if turn is not None)

    def count(self, freedom: bool) -> int:
        """The numbers that are learned, or the dimension of the set of their R."""
        sides = [turn for turn in (self.rotations.inputs, self.rotations.outputs) if turn is not None]
        return sum(turn.freedom if freedom else turn.raw.numel() for turn in sides)

    def extra_repr(self) -> str:
        """The method and the task in use."""
        options = ", ".join(f"{key}={value!r}" for key, value in self.method.options().items())
        return f"{options}, active={self.active!r}"


def _forward_of_conv1d(module: nn.Module) -> object:
    for kind in type(module).__mro__:
        if has_transposed_weight(module) and kind.__name__ == "Conv1D":
            return vars(kind)["forward"]
    return None


def _autocast(x: Tensor) -> bool:
    return torch.is_autocast_enabled(x.device.type)
