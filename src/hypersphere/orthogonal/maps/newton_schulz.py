"""Newton–Schulz iteration: the polar factor by matrix products alone."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from .map_precision import disable_autocast, find_missing, refuse_second_order, without_autocast

# Coefficients of σ, σ³, σ⁵, each the polynomial nearest to 1 in the largest error on an interval of singular values, by a
# linear program on a grid. Intervals after the first are 1 % wider than the values that the step before leaves, so that
# rounding cannot leave them.
_FIRST = (8.2600, -23.8804, 17.3436)  # [0.004, 1] → [0.03, 1.97]; smaller ones are multiplied by 8.3
_LAST = (  # [0.03, 2] → [0.12, 1.88] → [0.39, 1.61] → [0.84, 1.16] → 1 ± 0.003; the first by 3.9, as often as needed
    (3.9125, -2.7748, 0.5010),
    (3.3874, -2.4923, 0.4948),
    (2.3835, -1.7173, 0.4118),
    (1.8944, -1.2613, 0.3675),
)
_MAX_FIRST_STEPS = 8  # repetitions of the first step, which together scale by a factor of 5·10⁴


@disable_autocast
def newton_schulz(x: Float[Tensor, "*batch n n"], steps: int = 20) -> Float[Tensor, "*batch n n"]:
    r"""Return the limit of X ← X(3I − XᵀX)/2, which is :func:`~hypersphere.orthogonal.lowdin` of a non-singular x.

    The cubic step alone multiplies a small singular value by 1.5. Steps X ← X(aI + bG + cG²) with G = XᵀX go before it,
    whose coefficients are the best for the singular values that are left and multiply small ones by 8.3, then by 3.9 until
    a Cholesky factorization says that all are large enough. At most ``steps`` steps of all kinds, fewer once XᵀX is the
    identity to rounding: 20 do for a condition of 10⁷, and a random matrix takes about 10. A singular direction stays
    where it is: zero.

    The gradient is that of the limit, whatever the number of steps: with H = RᵀX = VΣVᵀ it is that of Löwdin's map.

    >>> newton_schulz(torch.tensor([[0.0, -2.0], [3.0, 0.0]])).round(decimals=5)
    tensor([[ 0., -1.],
            [ 1.,  0.]])
    """
    if steps < 1:
        raise ValueError(f"steps must be an integer ≥ 1, got {steps!r}")
    return _NewtonSchulz.apply(x, steps)  # type: ignore[no-any-return, no-untyped-call]


def polish(x: Tensor, steps: int) -> Tensor:
    """Make steps of the cubic iteration alone, for matrices with singular values below √3; two steps restore a nearly orthogonal one."""
    for _ in range(steps):
        x = 1.5 * x - 0.5 * (x @ (x.mT @ x))
    return x


def polar_gradient(w: Tensor, sigma: Tensor, vh: Tensor, gradient: Tensor) -> Tensor:
    """Return the gradient of X for that of WVᵀ, X = WΣVᵀ: W·[(K − Kᵀ)/(σ_i + σ_j)]·Vᵀ with K = WᵀGV."""
    k = w.mT @ gradient @ vh.mT
    return w @ ((k - k.mT) / (sigma.unsqueeze(-1) + sigma.unsqueeze(-2))) @ vh


class _NewtonSchulz(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, steps: int) -> Tensor:
        largest = x.abs().amax((-2, -1), keepdim=True)
        scaled = x / torch.where(largest > 0, largest, 1)
        result = _limit(scaled, steps)
        ctx.save_for_backward(scaled, result, largest)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        scaled, result, largest = ctx.saved_tensors
        refuse_second_order()
        with without_autocast(gradient):
            half = result.mT @ scaled
            sigma, v = torch.linalg.eigh((half + half.mT) / 2)
            absent, instead = find_missing(sigma)
            sigma = torch.where(absent, instead, sigma)
            return polar_gradient(result @ v, sigma, v.mT, gradient) / torch.where(largest > 0, largest, 1), None


def _limit(x: Tensor, steps: int) -> Tensor:
    shape, eye = x.shape, torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)
    x = x.reshape(-1, *shape[-2:])
    gram = x.mT @ x
    square = gram @ gram
    scale = torch.linalg.matrix_norm(square, keepdim=True).sqrt()  # ‖G²‖_F is σ₁⁴ or a little more
    scale = torch.where(scale > 0, scale, 1)
    x, done = _quintic(x / scale.sqrt(), gram / scale, square / scale**2, _FIRST), 1
    last = 0
    while done < steps and last < len(_LAST):
        gram = x.mT @ x
        ready = last > 0 or done > _MAX_FIRST_STEPS or _all_large(gram, eye)
        x = _quintic(x, gram, gram @ gram, _LAST[last])
        last, done = last + ready, done + 1
    for _ in range(done, steps):
        gram = x.mT @ x
        x = torch.baddbmm(x, x, gram, beta=1.5, alpha=-0.5)
        if not torch.compiler.is_compiling() and bool((gram - eye).abs().max() <= torch.finfo(x.dtype).eps ** 0.5):
            break
    return x.reshape(shape)


def _quintic(x: Tensor, gram: Tensor, square: Tensor, coefficients: tuple[float, float, float]) -> Tensor:
    a, b, c = coefficients
    return torch.baddbmm(x, x, torch.add(b * gram, square, alpha=c), beta=a)


def _all_large(gram: Tensor, eye: Tensor) -> bool:
    """Return whether all singular values exceed 0.03; False in a compiled graph, which has no values."""
    if torch.compiler.is_compiling():
        return False
    return bool((torch.linalg.cholesky_ex(gram - 0.03**2 * eye).info == 0).all())
