"""The Cayley transform, and its action on thin matrices without the transform itself (7.3.4)."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from .map_precision import disable_autocast, refuse_second_order, skew, without_autocast
from .orthogonal_map import Map


@disable_autocast
def cayley(x: Float[Tensor, "*batch n n"], *, terms: int | None = None) -> Float[Tensor, "*batch n n"]:
    r"""Return (I + A)(I − A)⁻¹ with A = (X − Xᵀ)/2, the skew part of x (7.3.4): a rotation, det R = +1.

    Exact by default: one LU with its solves forward and two products backward, orthogonal to 10⁻⁵ in float32 up to
    ‖A‖ ≈ 10². ``terms=k`` replaces the inverse by its Neumann series I + A + … + A^k, so that R becomes
    R·(I − A^{k+1}), which needs ‖A‖ < 1. ``k`` is even: then A^{k+1} is skew and RᵀR differs from I by ‖A‖^{2k+2} only,
    instead of ‖A‖^{k+1}.

    >>> cayley(torch.tensor([[0.0, -1.0], [1.0, 0.0]]))
    tensor([[ 0., -1.],
            [ 1.,  0.]])
    """
    if terms is None:
        return _Cayley.apply(x)  # type: ignore[no-any-return, no-untyped-call]
    if terms < 2 or terms % 2:
        raise ValueError(f"terms must be an even integer ≥ 2, or None for the exact transform, got {terms!r}")
    a = skew(x)
    eye = torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)
    series = eye + a
    for _ in range(terms - 1):
        series = eye + a @ series
    return series + a @ series


class Cayley(Map):
    """:func:`cayley` as a method; W = R·V costs one LU and two thin solves, R is never formed when neurons are few.

    >>> raw, rows = torch.randn(4, 4), torch.randn(2, 4)
    >>> torch.allclose(Cayley().act(raw, rows), rows @ cayley(raw).mT, atol=1e-5)
    True
    """

    function = staticmethod(cayley)
    orthogonal = True

    def __init__(self, terms: int | None = None):
        super().__init__()
        self.terms = terms

    def forward(self, raw: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch n n"]:
        """Return R."""
        return cayley(raw, terms=self.terms)

    def act(
        self, raw: Float[Tensor, "*batch n n"], rows: Float[Tensor, "*batch neurons n"]
    ) -> Float[Tensor, "*batch neurons n"]:
        """Return R v for every row v."""
        if self.terms is not None or rows.shape[-2] >= rows.shape[-1]:
            return super().act(raw, rows)
        return _Rotate.apply(raw, rows)  # type: ignore[no-any-return, no-untyped-call]

    def identity(self, raw: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch n n"]:
        """Return X = 0, which is where weight decay pulls."""
        return torch.zeros_like(raw)

    def extra_repr(self) -> str:
        """Describe the series, if there is one."""
        return "" if self.terms is None else f"terms={self.terms}"


class _Cayley(torch.autograd.Function):
    """R = MᵀM⁻¹ with M = 2(I − A); the gradient of X is P − Pᵀ with 4P = (I + R)ᵀG(I + R)ᵀ, so that R alone is kept.

    From the right the triangular solves run transposed, which the libraries do in two thirds of the time of an inverse.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        m = x.mT - x
        m.diagonal(dim1=-2, dim2=-1).add_(2)
        result = torch.linalg.solve_ex(m, m.mT, left=False)[0]  # nothing to check: I − A of a skew A is never singular
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        refuse_second_order()
        transposed = ctx.saved_tensors[0].mT
        with without_autocast(gradient):
            if gradient.ndim == 2:
                once = torch.addmm(gradient, transposed, gradient)
                product = torch.addmm(once, once, transposed, beta=0.25, alpha=0.25)
            else:
                once = gradient + transposed @ gradient
                product = (once @ transposed).add_(once).div_(4)
            return product - product.mT


class _Rotate(torch.autograd.Function):
    """W = 2Y − V with Y = V(I − A)⁻ᵀ; one LU serves both directions, the gradient of A is a thin product."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rows: Tensor) -> Tensor:
        lu, pivots, _ = torch.linalg.lu_factor_ex(_columns(x))
        solved = torch.linalg.lu_solve(lu, pivots, rows.mT)
        ctx.save_for_backward(lu, pivots, solved)
        return (2 * solved.mT).sub_(rows)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None]:
        lu, pivots, solved = ctx.saved_tensors
        refuse_second_order()
        with without_autocast(gradient):
            adjoint = torch.linalg.lu_solve(lu, pivots, gradient.mT, adjoint=True)
            product = adjoint @ solved.mT
            rows = (2 * adjoint.mT).sub_(gradient) if ctx.needs_input_grad[1] else None
            return product - product.mT, rows


def _columns(x: Tensor) -> Tensor:
    """I − A stored by columns, as LAPACK wants it, so that no copy is made: by rows it is the transpose, I + A."""
    transposed = (x - x.mT).div_(2)
    transposed.diagonal(dim1=-2, dim2=-1).add_(1)
    return transposed.mT
