"""Block-diagonal rotations by the Cayley transform, learned by the entries above the diagonal alone (OFT, COFT)."""

from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..maps.cayley import cayley
from ..maps.map_precision import refuse_second_order, upcast
from .rotation import Rotation

if TYPE_CHECKING:
    from .tuning_method import TuningMethod


class BlockRotation(Rotation):
    r"""R = Diag(R₁, …, R_k) with R_i = (I + A_i)(I − A_i)⁻¹ (OFT; Qiu et al., 2023), A_i skew-symmetric of size ``block``.

    ``raw`` holds the n(n − 1)/2 entries of each A_i above its diagonal; zeros are the identity. With ``eps`` all A_i
    together are shortened to ‖A‖_F ≤ ε/2 (COFT), so that ‖R − I‖_F ≤ 2‖A‖_F ≤ ε always holds.

    Args:
        parts: independent R.
        n: size of each, a multiple of ``block``.
        block: size of a block.
        terms: None for the exact transform, or the even number of terms of its Neumann series (OFTv2).
        eps: ε of COFT, or None.
        like: a tensor whose device and precision, float32 at least, the parameters have.
    """

    def __init__(self, parts: int, n: int, block: int, terms: int | None, eps: float | None, like: Tensor):
        super().__init__(parts, n)
        assert n % block == 0
        self.block, self.terms, self.eps = block, terms, eps
        shape = (parts, n // block, block * (block - 1) // 2)
        self.raw = nn.Parameter(torch.zeros(shape, dtype=upcast(like.dtype), device=like.device))

    @classmethod
    def create(
        cls, method: "TuningMethod", parts: int, n: int, like: Tensor, generator: torch.Generator | None
    ) -> "BlockRotation":
        """Return the identity in blocks that fit ``n``."""
        return cls(parts, n, method.choose_block(n)[0], method.terms, method.eps, like)

    @property
    def cost(self) -> int:
        """The size of a block."""
        return self.block

    @property
    def entries(self) -> int:
        """The entries of A_i above the diagonal."""
        return self.block * (self.block - 1) // 2

    def get_generators(self) -> Float[Tensor, "parts blocks entries"]:
        """Return the entries of the A_i above the diagonal, as they act, in float32 or better."""
        raw = self.raw.to(upcast(self.raw.dtype))
        if self.eps is not None:
            length = 2**0.5 * torch.linalg.vector_norm(
                raw, dim=(-2, -1), keepdim=True
            )  # ‖A‖_F counts every entry twice
            raw = raw * (self.eps / 2 / length.clamp_min(self.eps / 2))
        return raw

    def blocks(self) -> Float[Tensor, "parts blocks b b"]:
        """Return the R_i."""
        return skew_cayley(self.get_generators(), self.block, self.terms)

    def forward(self, rows: Float[Tensor, "parts m n"], transpose: bool = False) -> Float[Tensor, "parts m n"]:
        """Return R v or Rᵀ v for every row v."""
        with torch.autocast(rows.device.type, enabled=False):
            r = self.blocks()
            return rotate_blocks(rows, r if transpose else r.mT)

    def rewind(self, t: float) -> None:
        """Multiply the generators as they act by t; those of COFT may have been longer than ε allows."""
        with torch.no_grad():
            self.raw.copy_(t * self.get_generators())

    def reset(self, generator: torch.Generator | None = None) -> None:
        """Set the generators to zero."""
        with torch.no_grad():
            self.raw.zero_()


class PermutedRotation(BlockRotation):
    """A :class:`BlockRotation` of coordinates in a random order, drawn anew by every :meth:`reset` (POET; Qiu et al., 2025).

    Blocks alone never mix coordinates of different blocks; with a new order after every merge all of them meet.
    """

    order: Tensor
    back: Tensor
    redrawable = True

    def __init__(
        self, parts: int, n: int, block: int, terms: int | None, like: Tensor, generator: torch.Generator | None = None
    ):
        super().__init__(parts, n, block, terms, None, like)
        self.register_buffer("order", torch.arange(n, device=like.device).repeat(parts, 1))
        self.register_buffer("back", self.order.clone())
        self.reset(generator)

    @classmethod
    def create(
        cls, method: "TuningMethod", parts: int, n: int, like: Tensor, generator: torch.Generator | None
    ) -> "PermutedRotation":
        """Return the identity in blocks that fit ``n``, with a random order."""
        return cls(parts, n, method.choose_block(n)[0], method.terms, like, generator)

    def forward(self, rows: Float[Tensor, "parts m n"], transpose: bool = False) -> Float[Tensor, "parts m n"]:
        """Return R v or Rᵀ v for every row v."""
        order, back = (o.unsqueeze(1).expand_as(rows) for o in (self.order, self.back))
        return super().forward(rows.gather(-1, order), transpose).gather(-1, back)

    def reset(self, generator: torch.Generator | None = None) -> None:
        """Set the generators to zero and draw a new order."""
        super().reset(generator)
        for part in range(self.parts):
            device = generator.device if generator is not None else self.order.device
            self.order[part] = torch.randperm(self.n, generator=generator, device=device)
        self.back.copy_(self.order.argsort(-1))


def skew_cayley(raw: Float[Tensor, "*batch entries"], n: int, terms: int | None = None) -> Float[Tensor, "*batch n n"]:
    """Return (I + A)(I − A)⁻¹ for the skew-symmetric A whose n(n − 1)/2 entries above the diagonal are ``raw``, row by row.

    >>> skew_cayley(torch.tensor([-1.0]), 2)
    tensor([[ 0., -1.],
            [ 1.,  0.]])
    """
    if terms is None:
        return _SkewCayley.apply(raw, n)  # type: ignore[no-any-return, no-untyped-call]
    return cayley(expand_skew(raw, n), terms=terms)


def rotate_blocks(rows: Float[Tensor, "parts m n"], r: Float[Tensor, "parts blocks b b"]) -> Float[Tensor, "parts m n"]:
    """Multiply each run of b numbers of every row by its own matrix, in the matrices' precision; return the rows' dtype."""
    return _RotateBlocks.apply(rows, r)  # type: ignore[no-any-return, no-untyped-call]


def expand_skew(raw: Float[Tensor, "*batch entries"], n: int) -> Float[Tensor, "*batch n n"]:
    """Return the skew-symmetric matrices with these entries above the diagonal, row by row."""
    i, j = torch.triu_indices(n, n, 1, device=raw.device)
    a = raw.new_zeros(*raw.shape[:-1], n * n)
    a = a.index_copy(-1, i * n + j, raw).index_copy(-1, j * n + i, -raw)
    return a.unflatten(-1, (n, n))


class _SkewCayley(torch.autograd.Function):
    """R = 2B − I with B = (I − A)⁻¹; with P = BᵀGBᵀ, which is half the gradient of A, that of raw is 2(P − Pᵀ) above."""

    @staticmethod
    def forward(ctx: Any, raw: Tensor, n: int) -> Tensor:
        a = expand_skew(raw, n)
        a.diagonal(dim1=-2, dim2=-1).add_(-1)
        inverse = torch.linalg.inv(a).neg_()
        ctx.save_for_backward(inverse)
        result = 2 * inverse
        result.diagonal(dim1=-2, dim2=-1).sub_(1)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        refuse_second_order()
        (inverse,) = ctx.saved_tensors
        n = inverse.shape[-1]
        with torch.autocast(gradient.device.type, enabled=False):
            product = (inverse.mT @ gradient) @ inverse.mT
            whole = (product - product.mT).mul_(2)
            i, j = torch.triu_indices(n, n, 1, device=gradient.device)
            return whole.flatten(-2).index_select(-1, i * n + j), None


class _RotateBlocks(torch.autograd.Function):
    """y_k = x_k M_k. Only x in its own dtype and M are kept; a widened copy of x exists during each pass only."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, r: Tensor) -> Tensor:
        ctx.save_for_backward(rows, r)
        return _multiply_runs(rows, r)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
        refuse_second_order()
        rows, r = ctx.saved_tensors
        with torch.autocast(gradient.device.type, enabled=False):
            first = _multiply_runs(gradient, r.mT) if ctx.needs_input_grad[0] else None
            second = multiply_blocks(rows, gradient, r) if ctx.needs_input_grad[1] else None
        return first, second


def multiply_blocks(left: Tensor, right: Tensor, like: Tensor) -> Tensor:
    """Return left_kᵀ right_k for every run k of columns, in the shape and precision of the matrices ``like``."""
    return _view_runs(left, like).mT @ _view_runs(right, like)


def _multiply_runs(rows: Tensor, r: Tensor) -> Tensor:
    """Multiply each run by its matrix and write it where it belongs: a product of its own shape would have to be copied."""
    if torch.compiler.is_compiling():  # the compiler fuses the copy, and does not trace products into a view
        return (_view_runs(rows, r) @ r).transpose(1, 2).reshape(rows.shape).to(rows.dtype)
    wide = rows.to(r.dtype)
    result = torch.empty(rows.shape, dtype=r.dtype, device=r.device)
    for x, y, matrices in zip(_view_runs(wide, r), _view_runs(result, r), r, strict=True):
        torch.bmm(x, matrices, out=y)
    return result.to(rows.dtype)


def _view_runs(rows: Tensor, r: Tensor) -> Tensor:
    """View ``(parts, m, blocks·b)`` as ``(parts, blocks, m, b)``, without a copy where the precision is right already."""
    return rows.to(r.dtype).unflatten(-1, r.shape[1:3]).transpose(1, 2)
