"""Newton–Schulz iteration, which computes the polar factor by matrix products only."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ...geometry import disable_autocast
from .map_precision import find_missing, refuse_second_order, upcast_squares

# Coefficients of σ, σ³ and σ⁵. Each polynomial minimizes the largest deviation from 1 on an interval of singular values
# (a linear program on a grid). Every interval after the first is 1 % wider than the result of the previous step, so that
# rounding cannot leave it.
_FIRST_COEFFICIENTS = (8.2600, -23.8804, 17.3436)  # [0.004, 1] → [0.03, 1.97]; smaller values are multiplied by 8.3
# [0.03, 2] → [0.12, 1.88] → [0.39, 1.61] → [0.84, 1.16] → 1 ± 0.003; the first step, repeated as needed, scales by 3.9
_LAST_COEFFICIENTS = (
    (3.9125, -2.7748, 0.5010),
    (3.3874, -2.4923, 0.4948),
    (2.3835, -1.7173, 0.4118),
    (1.8944, -1.2613, 0.3675),
)
_MAX_FIRST_STEPS = 8  # limit of the repetitions, which together scale by 5·10⁴


@upcast_squares
def newton_schulz(x: Float[Tensor, "*batch n n"], steps: int = 20) -> Float[Tensor, "*batch n n"]:
    r"""Return the limit of X ← X(3I − XᵀX)/2, which equals :func:`~hypersphere.orthogonal.lowdin` for a non-singular x.

    A cubic step multiplies a small singular value by only 1.5. It is therefore preceded by steps X ← X(aI + bG + cG²)
    with G = XᵀX and optimal coefficients for the remaining range of singular values. They multiply small singular values
    by 8.3 once, then by 3.9 until a Cholesky factorization shows that all are large enough. The total number of steps is
    at most ``steps``; the iteration ends early if XᵀX is the identity up to rounding. 20 steps suffice for a condition
    number of 10⁷, and a random matrix needs about 10. A singular value of zero stays zero.

    The gradient is that of the limit for any number of steps. With H = RᵀX = VΣVᵀ it is the gradient of Löwdin's map.

    >>> newton_schulz(torch.tensor([[0.0, -2.0], [3.0, 0.0]])).round(decimals=5)
    tensor([[ 0., -1.],
            [ 1.,  0.]])
    """
    if steps < 1:
        raise ValueError(f"steps must be an integer ≥ 1, got {steps!r}")
    return _NewtonSchulz.apply(x, steps)  # type: ignore[no-any-return, no-untyped-call]


def polish(x: Tensor, steps: int) -> Tensor:
    """Make cubic steps, for singular values below √3. Two steps restore a nearly orthogonal matrix."""
    for _ in range(steps):
        x = 1.5 * x - 0.5 * (x @ (x.mT @ x))
    return x


def polar_gradient(w: Tensor, sigma: Tensor, vh: Tensor, gradient: Tensor) -> Tensor:
    """Return the gradient of X = WΣVᵀ from the gradient G of WVᵀ: W·[(K − Kᵀ)/(σ_i + σ_j)]·Vᵀ with K = WᵀGV."""
    k = w.mT @ gradient @ vh.mT
    return w @ ((k - k.mT) / (sigma.unsqueeze(-1) + sigma.unsqueeze(-2))) @ vh


class _NewtonSchulz(torch.autograd.Function):
    """R = lim X ← X(3I − XᵀX)/2, computed after a division by the largest entry of X.

    The backward pass computes the gradient of the polar factor by :func:`polar_gradient` instead of differentiating the
    steps. The symmetric factor H = RᵀX = VΣVᵀ provides the singular vectors and values: X = (RV)ΣVᵀ.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, steps: int) -> Tensor:
        largest = x.abs().amax((-2, -1), keepdim=True)
        scaled = x / torch.where(largest > 0, largest, 1)
        result = _iterate(scaled, steps)
        ctx.save_for_backward(scaled, result, largest)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        scaled, result, largest = ctx.saved_tensors
        refuse_second_order()
        with disable_autocast(gradient.device.type):
            h = result.mT @ scaled
            sigma, v = torch.linalg.eigh((h + h.mT) / 2)
            absent, instead = find_missing(sigma)
            sigma = torch.where(absent, instead, sigma)
            return polar_gradient(result @ v, sigma, v.mT, gradient) / torch.where(largest > 0, largest, 1), None


def _iterate(x: Tensor, steps: int) -> Tensor:
    shape, eye = x.shape, torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)
    x = x.reshape(-1, *shape[-2:])
    gram = x.mT @ x
    square = gram @ gram
    scale = torch.linalg.matrix_norm(square, keepdim=True).sqrt()  # ‖G²‖_F ≥ σ₁⁴, and only slightly larger
    scale = torch.where(scale > 0, scale, 1)
    x, done = _apply_quintic_step(x / scale.sqrt(), gram / scale, square / scale**2, _FIRST_COEFFICIENTS), 1
    last_steps = 0
    while done < steps and last_steps < len(_LAST_COEFFICIENTS):
        gram = x.mT @ x
        all_large = last_steps > 0 or done > _MAX_FIRST_STEPS or _are_all_large(gram, eye)
        x = _apply_quintic_step(x, gram, gram @ gram, _LAST_COEFFICIENTS[last_steps])
        last_steps, done = last_steps + all_large, done + 1
    for _ in range(done, steps):
        gram = x.mT @ x
        x = torch.baddbmm(x, x, gram, beta=1.5, alpha=-0.5)
        if not torch.compiler.is_compiling() and bool((gram - eye).abs().max() <= torch.finfo(x.dtype).eps ** 0.5):
            break
    return x.reshape(shape)


def _apply_quintic_step(x: Tensor, gram: Tensor, square: Tensor, coefficients: tuple[float, float, float]) -> Tensor:
    a, b, c = coefficients
    return torch.baddbmm(x, x, torch.add(b * gram, square, alpha=c), beta=a)


def _are_all_large(gram: Tensor, eye: Tensor) -> bool:
    """Return whether all singular values exceed 0.03; False while compiling, because a graph has no values."""
    if torch.compiler.is_compiling():
        return False
    return bool((torch.linalg.cholesky_ex(gram - 0.03**2 * eye).info == 0).all())
