"""Block-diagonal rotations by the Cayley transform of skew-symmetric generators (OFT, COFT, POET)."""

from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ...geometry import accumulation_dtype, disable_autocast
from ..maps.cayley import cayley
from ..maps.map_precision import refuse_second_order
from .rotation import Rotation

if TYPE_CHECKING:
    from .tuning_method import TuningMethod


class BlockRotation(Rotation):
    r"""R = Diag(R₁, …, R_k) with R_i = (I + A_i)(I − A_i)⁻¹ (OFT; Qiu et al., 2023), A_i skew-symmetric of size ``block``.

    ``raw`` holds the b(b − 1)/2 entries of each A_i above its diagonal, where b is the size of a block; zeros give the
    identity. With ``eps`` (COFT) all A_i are scaled together to ‖A‖_F ≤ ε/2, so that ‖R − I‖_F ≤ 2‖A‖_F ≤ ε.
    """

    def __init__(
        self, method: "TuningMethod", parts: int, n: int, like: Tensor, generator: torch.Generator | None = None
    ):
        super().__init__(method, parts, n, like, generator)
        self.block, self.terms, self.eps = method.choose_block(n)[0], method.terms, method.eps
        self.entries = self.block * (self.block - 1) // 2
        shape = (parts, n // self.block, self.entries)
        self.raw = nn.Parameter(torch.zeros(shape, dtype=accumulation_dtype(like), device=like.device))

    @property
    def cost(self) -> int:
        """The size of a block."""
        return self.block

    def get_generators(self) -> Float[Tensor, "parts blocks entries"]:
        """Return the entries of the A_i above the diagonal, after the scaling by ``eps``, in float32 or better."""
        raw = self.raw.to(accumulation_dtype(self.raw))
        if self.eps is not None:
            # ‖A‖_F counts every entry twice.
            length = 2**0.5 * torch.linalg.vector_norm(raw, dim=(-2, -1), keepdim=True)
            raw = raw * (self.eps / 2 / length.clamp_min(self.eps / 2))
        return raw

    def blocks(self) -> Float[Tensor, "parts blocks b b"]:
        """Return the R_i."""
        return skew_cayley(self.get_generators(), self.block, self.terms)

    def forward(self, rows: Float[Tensor, "parts m n"], transpose: bool = False) -> Float[Tensor, "parts m n"]:
        """Return R v or Rᵀ v for every row v."""
        with disable_autocast(rows.device.type):
            r = self.blocks()
            return rotate_blocks(rows, r if transpose else r.mT)

    def rewind(self, t: float) -> None:
        """Multiply the generators, after their scaling by ``eps``, by t."""
        with torch.no_grad():
            self.raw.copy_(t * self.get_generators())


class PermutedRotation(BlockRotation):
    """A :class:`BlockRotation` of randomly ordered coordinates (POET; Qiu et al., 2025).

    Every :meth:`reset` draws a new order. A fixed order never mixes coordinates of different blocks.
    """

    order: Tensor
    back: Tensor
    redrawable = True

    def __init__(
        self, method: "TuningMethod", parts: int, n: int, like: Tensor, generator: torch.Generator | None = None
    ):
        super().__init__(method, parts, n, like, generator)
        self.register_buffer("order", torch.arange(n, device=like.device).repeat(parts, 1))
        self.register_buffer("back", self.order.clone())
        self.reset(generator)

    def forward(self, rows: Float[Tensor, "parts m n"], transpose: bool = False) -> Float[Tensor, "parts m n"]:
        """Return R v or Rᵀ v for every row v."""
        order, back = (index.unsqueeze(1).expand_as(rows) for index in (self.order, self.back))
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
    """Multiply run k of b numbers of every row by matrix k, in the dtype of the matrices; return the dtype of the rows."""
    return _RotateBlocks.apply(rows, r)  # type: ignore[no-any-return, no-untyped-call]


def expand_skew(raw: Float[Tensor, "*batch entries"], n: int) -> Float[Tensor, "*batch n n"]:
    """Return the skew-symmetric matrices with these entries above the diagonal, row by row."""
    i, j = torch.triu_indices(n, n, 1, device=raw.device)
    a = raw.new_zeros(*raw.shape[:-1], n * n)
    a = a.index_copy(-1, i * n + j, raw).index_copy(-1, j * n + i, -raw)
    return a.unflatten(-1, (n, n))


class _SkewCayley(torch.autograd.Function):
    """R = (I + A)(I − A)⁻¹ = 2B − I with B = (I − A)⁻¹.

    The backward pass computes the gradient of the entries of A above the diagonal from the gradient G of R. The gradient of
    A is 2P with P = BᵀGBᵀ. An entry occurs in A as a_ij and as −a_ji, so its gradient is the entry of 2(P − Pᵀ).
    """

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
        with disable_autocast(gradient.device.type):
            product = (inverse.mT @ gradient) @ inverse.mT
            skew = (product - product.mT).mul_(2)
            i, j = torch.triu_indices(n, n, 1, device=gradient.device)
            return skew.flatten(-2).index_select(-1, i * n + j), None


class _RotateBlocks(torch.autograd.Function):
    """y_k = x_k M_k for every run k of columns, with the gradients G_k M_kᵀ of x_k and x_kᵀ G_k of M_k.

    Only x in its original dtype and M are saved. The copy of x in the dtype of M exists only during each pass.
    """

    @staticmethod
    def forward(ctx: Any, rows: Tensor, r: Tensor) -> Tensor:
        ctx.save_for_backward(rows, r)
        return _multiply_runs(rows, r)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
        refuse_second_order()
        rows, r = ctx.saved_tensors
        with disable_autocast(gradient.device.type):
            d_rows = _multiply_runs(gradient, r.mT) if ctx.needs_input_grad[0] else None
            d_r = multiply_blocks(rows, gradient, r) if ctx.needs_input_grad[1] else None
        return d_rows, d_r


def multiply_blocks(left: Tensor, right: Tensor, like: Tensor) -> Tensor:
    """Return left_kᵀ right_k for every run k of columns, in the shape and the dtype of the matrices ``like``."""
    return _view_runs(left, like).mT @ _view_runs(right, like)


def _multiply_runs(rows: Tensor, r: Tensor) -> Tensor:
    """Multiply each run by its matrix. The products are written into views of the result, which saves a copy."""
    if torch.compiler.is_compiling():  # the compiler fuses the copy and cannot trace products into a view
        return (_view_runs(rows, r) @ r).transpose(1, 2).reshape(rows.shape).to(rows.dtype)
    wide = rows.to(r.dtype)
    result = torch.empty(rows.shape, dtype=r.dtype, device=r.device)
    for x, y, matrices in zip(_view_runs(wide, r), _view_runs(result, r), r, strict=True):
        torch.bmm(x, matrices, out=y)
    return result.to(rows.dtype)


def _view_runs(rows: Tensor, r: Tensor) -> Tensor:
    """Return ``(parts, m, blocks·b)`` as ``(parts, blocks, m, b)`` in the dtype of ``r``, without a copy if it has that dtype."""
    return rows.to(r.dtype).unflatten(-1, r.shape[1:3]).transpose(1, 2)
