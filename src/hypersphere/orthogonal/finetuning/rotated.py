"""Rotations of neurons as a learned change: W = W₀Rᵀ, or W = R' W₀ Rᵀ, optionally with learned lengths."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import linear
from torch.utils.checkpoint import checkpoint

from ...geometry import accumulation_dtype
from ..maps.map_precision import refuse_second_order
from .block_rotation import BlockRotation, multiply_blocks, rotate_blocks
from .rotation import Rotation
from .weight_change import WeightChange, WeightLayout

if TYPE_CHECKING:
    from .tuning_method import TuningMethod


class Rotated(WeightChange):
    r"""W = R' W₀ Rᵀ. R rotates the inputs; R' mixes the neurons with each other in methods that have it (POET).

    With R', the backward pass computes everything again that only it needs. Of all tensors of the size of its inputs or
    outputs, a layer then stores only its input (as in POET-X, arXiv:2603.05500).

    Attributes:
        inputs: R.
        outputs: R', or None.
        lengths: A factor for the length of each neuron, ``(parts, m, 1)``, or None.
    """

    inputs: Rotation
    outputs: Rotation | None
    lengths: nn.Parameter | None

    def __init__(
        self,
        method: "TuningMethod",
        layout: WeightLayout,
        rows: Tensor | None,
        like: Tensor,
        generator: torch.Generator | None = None,
    ):
        super().__init__(method, layout, rows, like, generator)
        kind, m = method.kind, layout.neurons // layout.groups
        assert kind.rotation is not None
        self.inputs = kind.rotation(method, layout.parts, layout.numbers, like, generator)
        has_outputs = kind.two_sided and self.explain_misfit(method, m) is None
        self.outputs = kind.rotation(method, layout.groups, m, like, generator) if has_outputs else None
        lengths = None
        if method.lengths:
            shape = (layout.parts, layout.neurons // layout.parts, 1)
            lengths = nn.Parameter(torch.ones(shape, dtype=accumulation_dtype(like), device=like.device))
        self.register_parameter("lengths", lengths)

    @classmethod
    def explain_misfit(cls, method: "TuningMethod", numbers: int) -> str | None:
        """Return why neurons of this length cannot be rotated, or None."""
        if numbers < 2:
            return f"its neurons have {numbers} number, which cannot be rotated"
        assert method.kind.rotation is not None
        return method.kind.rotation.explain_misfit(method, numbers)

    @classmethod
    def explain_quantized(cls, method: "TuningMethod") -> str | None:
        """Return why a quantized weight cannot be rotated, or None."""
        return (
            "POET multiplies R into the weight, which a quantized weight does not allow"
            if method.kind.two_sided
            else None
        )

    @classmethod
    def describe(cls, method: "TuningMethod", numbers: int) -> str:
        """Describe the rotation."""
        assert method.kind.rotation is not None
        return method.kind.rotation.describe(method, numbers) + (", lengths" if method.lengths else "")

    @property
    def redrawable(self) -> bool:  # type: ignore[override]
        """Whether the rotation has a random order of coordinates."""
        return self.inputs.redrawable

    @property
    def cost(self) -> float:
        """The number of products per sample."""
        outputs = self.outputs.cost * self.outputs.n * self.outputs.parts if self.outputs is not None else 0
        return self.inputs.cost * self.inputs.n + outputs

    def forward(self, rows: Float[Tensor, "parts m n"]) -> Float[Tensor, "parts m n"]:
        """Return R' W₀ Rᵀ."""
        if self.outputs is not None and torch.is_grad_enabled():
            result: Tensor = checkpoint(self._rotate_rows, rows, use_reentrant=False, preserve_rng_state=False)
            return result
        return self._rotate_rows(rows)

    def _rotate_rows(self, rows: Tensor) -> Tensor:
        rotated = self.inputs(rows)
        if self.outputs is not None:
            columns = rotated.flatten(0, 1).unflatten(0, (self.outputs.parts, -1)).mT
            rotated = self.outputs(columns).mT.reshape(rows.shape)
        return rotated if self.lengths is None else rotated * self.lengths.to(rotated.dtype)

    def compute_outputs(
        self, x: Float[Tensor, "*batch n"], rows: Float[Tensor, "m n"], bias: Tensor | None
    ) -> Float[Tensor, "*batch m"]:
        """Return R'W₀(Rᵀx) + b without forming W."""
        if self.outputs is not None and torch.is_grad_enabled():
            result: Tensor = checkpoint(
                self._compute_outputs, x, rows, bias, use_reentrant=False, preserve_rng_state=False
            )
            return result
        return self._compute_outputs(x, rows, bias)

    def _compute_outputs(self, x: Tensor, rows: Tensor, bias: Tensor | None) -> Tensor:
        if self.outputs is None:
            is_exact = type(self.inputs) is BlockRotation and self.inputs.terms is None and self.lengths is None
            is_plain = x.dtype == rows.dtype == accumulation_dtype(rows) and not torch.is_autocast_enabled(
                x.device.type
            )
            if is_exact and is_plain:
                assert isinstance(self.inputs, BlockRotation)
                return apply_rotated_linear(x, rows, bias, self.inputs.blocks())
            return self.compute_around(x, lambda rotated: linear(rotated, rows, bias), bias)
        y = linear(self._rotate_inputs(x), rows)
        y = self.outputs(y.reshape(1, -1, y.shape[-1])).reshape(y.shape)
        return y if bias is None else y + bias.to(y.dtype)

    def compute_around(self, x: Tensor, base: Callable[[Tensor], Tensor], bias: Tensor | None) -> Tensor:
        """Return the outputs of a frozen layer for the inputs Rᵀx."""
        assert self.outputs is None
        y = base(self._rotate_inputs(x))
        if self.lengths is None:
            return y
        plain = y if bias is None else y - bias.to(y.dtype)
        return y + plain * (self.lengths.flatten() - 1).to(y.dtype)  # exactly y if the lengths are 1

    def _rotate_inputs(self, x: Tensor) -> Tensor:
        rotated: Tensor = self.inputs(x.reshape(1, -1, x.shape[-1]), transpose=True)
        return rotated.reshape(x.shape)

    def reset(self, generator: torch.Generator | None = None) -> None:
        """Return to the identity and to lengths of 1."""
        for rotation in self.list_rotations():
            rotation.reset(generator)
        if self.lengths is not None:
            with torch.no_grad():
                self.lengths.fill_(1)

    def rewind(self, t: float) -> None:
        """Scale the generators of the rotations and the differences of the lengths from 1."""
        with torch.no_grad():
            for rotation in self.list_rotations():
                rotation.rewind(t)
            if self.lengths is not None:
                self.lengths.sub_(1).mul_(t).add_(1)

    def count(self, freedom: bool) -> int:
        """Count the learned numbers, or return the dimension of the set of possible rotations and lengths."""
        rotated = sum(rotation.freedom if freedom else rotation.raw.numel() for rotation in self.list_rotations())
        return rotated + (0 if self.lengths is None else self.lengths.numel())

    def error(self) -> float:
        """Return the largest entry of |RᵀR − I| of both rotations."""
        return max(rotation.error() for rotation in self.list_rotations())

    def list_rate_factors(self) -> Iterator[tuple[nn.Parameter, float]]:
        """Yield the generators with 1/√(entries of a generator), and the lengths with 1."""
        for rotation in self.list_rotations():
            yield rotation.raw, rotation.entries**-0.5
        if self.lengths is not None:
            yield self.lengths, 1.0

    def get_generators(self) -> Tensor | None:
        """Return the generators of a block-diagonal Cayley transform, otherwise None."""
        is_single = type(self.inputs) is BlockRotation and self.outputs is None and self.lengths is None
        return self.inputs.raw if is_single else None

    def list_rotations(self) -> list[Rotation]:
        """Return R, and R' if the method has it."""
        return [rotation for rotation in (self.inputs, self.outputs) if rotation is not None]


def apply_rotated_linear(
    x: Float[Tensor, "*batch n"],
    weight: Float[Tensor, "neurons n"],
    bias: Float[Tensor, "neurons"] | None,
    r: Float[Tensor, "1 blocks b b"],
) -> Float[Tensor, "*batch neurons"]:
    """Return x R Wᵀ + b with R = Diag(R₁, …, R_k) orthogonal and W frozen.

    With blocks of size b, rotating t inputs takes t·n·b products and rotating m neurons takes m·n·b. So the inputs are
    rotated if there are fewer inputs than neurons. Otherwise W Rᵀ is formed once and saved for the backward pass; it is
    never larger than the input, which is saved anyway. The gradient of R then costs one thin product: with the gradient D
    of x it consists of the blocks of (xᵀD)R, because R is orthogonal.
    """
    tokens = x.numel() // max(x.shape[-1], 1)
    if tokens < weight.shape[0] or not x.requires_grad or weight.requires_grad:
        return linear(rotate_blocks(x.reshape(1, -1, x.shape[-1]), r).reshape(x.shape), weight, bias)
    return _RotatedLinear.apply(x, weight, bias, r)  # type: ignore[no-any-return, no-untyped-call]


class _RotatedLinear(torch.autograd.Function):
    """y = x(WRᵀ)ᵀ + b. With the gradient G of y, the gradient of x is D = G(WRᵀ), and that of R the blocks of (xᵀD)R."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, r: Tensor) -> Tensor:
        rotated = rotate_blocks(weight.unsqueeze(0), r.mT)[0]
        ctx.save_for_backward(x, rotated, r)
        return linear(x, rotated, bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, Tensor | None, Tensor | None]:
        refuse_second_order()
        x, rotated, r = ctx.saved_tensors
        d_x = gradient @ rotated
        d_r = None
        if ctx.needs_input_grad[3]:
            d_r = multiply_blocks(x.reshape(1, -1, x.shape[-1]), d_x.reshape(1, -1, x.shape[-1]), r) @ r
        d_bias = gradient.flatten(0, -2).sum(0) if ctx.needs_input_grad[2] else None
        return d_x, None, d_bias, d_r
