"""The Cayley transform, and its product with a thin matrix without forming R (7.3.4)."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ...geometry import disable_autocast
from .map_precision import get_skew_part, refuse_second_order, upcast_squares
from .orthogonal_map import SkewMap


@upcast_squares
def cayley(x: Float[Tensor, "*batch n n"], *, terms: int | None = None) -> Float[Tensor, "*batch n n"]:
    r"""Return (I + A)(I − A)⁻¹ with the skew-symmetric part A = (X − Xᵀ)/2 of x (7.3.4), a rotation with det R = +1.

    The default is exact: one LU decomposition with its solves in the forward pass and two products in the backward pass.
    In float32, R is orthogonal up to 10⁻⁵ for ‖A‖ up to about 10². ``terms=k`` replaces the inverse by its Neumann series
    I + A + … + A^k, so that R becomes R·(I − A^{k+1}); this needs ‖A‖ < 1. ``k`` must be even: then A^{k+1} is
    skew-symmetric, and RᵀR deviates from I by only ‖A‖^{2k+2} instead of ‖A‖^{k+1}.

    >>> cayley(torch.tensor([[0.0, -1.0], [1.0, 0.0]]))
    tensor([[ 0., -1.],
            [ 1.,  0.]])
    """
    if terms is None:
        return _Cayley.apply(x)  # type: ignore[no-any-return, no-untyped-call]
    if terms < 2 or terms % 2:
        raise ValueError(f"terms must be an even integer ≥ 2, or None for the exact transform, got {terms!r}")
    a = get_skew_part(x)
    eye = torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)
    series = eye + a
    for _ in range(terms - 1):
        series = eye + a @ series
    return series + a @ series


class Cayley(SkewMap):
    """:func:`cayley` as a method. With fewer neurons than n, R v costs one LU and two thin solves, without forming R.

    >>> raw, rows = torch.randn(4, 4), torch.randn(2, 4)
    >>> torch.allclose(Cayley().act(raw, rows), rows @ cayley(raw).mT, atol=1e-5)
    True
    """

    function = staticmethod(cayley)

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

    def extra_repr(self) -> str:
        """Describe the series, if there is one."""
        return "" if self.terms is None else f"terms={self.terms}"


class _Cayley(torch.autograd.Function):
    """R = MᵀM⁻¹ with M = 2(I − A), where A = (X − Xᵀ)/2.

    The backward pass computes the gradient of X from the gradient G of R: it is P − Pᵀ with 4P = (I + R)ᵀG(I + R)ᵀ, so
    only R is stored. The forward pass solves from the right, so that the triangular solves run transposed, which takes two
    thirds of the time of an inverse.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        m = x.mT - x
        m.diagonal(dim1=-2, dim2=-1).add_(2)
        result = torch.linalg.solve_ex(m, m.mT, left=False)[0]  # unchecked, because I − A is never singular
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        refuse_second_order()
        transposed = ctx.saved_tensors[0].mT
        with disable_autocast(gradient.device.type):
            if gradient.ndim == 2:  # fused operations
                left = torch.addmm(gradient, transposed, gradient)
                product = torch.addmm(left, left, transposed, beta=0.25, alpha=0.25)
            else:
                left = gradient + transposed @ gradient
                product = (left @ transposed).add_(left).div_(4)
            return product - product.mT


class _Rotate(torch.autograd.Function):
    """W = VRᵀ = 2Y − V with Y = V(I − A)⁻ᵀ, for a thin matrix V of rows.

    The backward pass computes the gradients of X and V from the gradient G of W. It reuses the LU decomposition of I − A:
    with Z = (I − A)⁻ᵀGᵀ the gradient of V is 2Zᵀ − G, and that of X is P − Pᵀ with the thin product P = ZY.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, rows: Tensor) -> Tensor:
        lu, pivots, _ = torch.linalg.lu_factor_ex(_build_column_major(x))
        solved = torch.linalg.lu_solve(lu, pivots, rows.mT)
        ctx.save_for_backward(lu, pivots, solved)
        return (2 * solved.mT).sub_(rows)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None]:
        lu, pivots, solved = ctx.saved_tensors
        refuse_second_order()
        with disable_autocast(gradient.device.type):
            adjoint = torch.linalg.lu_solve(lu, pivots, gradient.mT, adjoint=True)
            product = adjoint @ solved.mT
            rows = (2 * adjoint.mT).sub_(gradient) if ctx.needs_input_grad[1] else None
            return product - product.mT, rows


def _build_column_major(x: Tensor) -> Tensor:
    """Return I − A in column-major order, the layout of LAPACK, so that no copy is needed; its transpose is I + A."""
    transposed = (x - x.mT).div_(2)
    transposed.diagonal(dim1=-2, dim2=-1).add_(1)
    return transposed.mT
