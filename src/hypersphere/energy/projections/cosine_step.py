"""A step of gradient descent on the cosine loss (eq. 6.6) as a function with a hand-written gradient."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ...geometry import disable_autocast, normalize
from ...geometry.fast_norms import directions, directions_backward
from .random import project


def cosine_step(basis: Float[Tensor, "count k d"], weights: list[Tensor], lr: float) -> Float[Tensor, "count k d"]:
    r"""Return P − η∂L_P/∂P with L_P = mean_{i≠j} (cos(w_i, w_j) − cos(Pw_i, Pw_j))² over bases, groups and layers  (eq. 6.6).

    With x = ŵ and the directions y of Pw, the gradient with respect to y is a multiple of (xxᵀ − yyᵀ)y = x(xᵀy) − y(yᵀy).
    It takes a few products with the k columns of y and no matrix of all pairs. The same holds for the gradient of the step
    itself, which an unrolled energy needs. Higher derivatives are computed from the matrix of all pairs. ``weights`` are the
    neurons of the layers that share the basis, each (groups, neurons, d).

    >>> w, p = torch.randn(1, 5, 6), torch.randn(1, 3, 6)
    >>> cosine_step(p, [w], 0.1).shape
    torch.Size([1, 3, 6])
    """
    if torch.compiler.is_compiling():
        return _step_by_pairs(basis, weights, lr)
    return _CosineStep.apply(lr, basis, *weights)  # type: ignore[no-any-return, no-untyped-call]


def cosine_loss(weights: list[Tensor], basis: Float[Tensor, "count k d"]) -> Float[Tensor, ""]:
    """Return L_P from the cosines of all pairs. It can be differentiated any number of times."""
    losses = []
    for weight in weights:
        n = weight.shape[1]
        x, y = normalize(weight), normalize(project(weight, basis))
        losses.append(
            (x @ x.mT - y @ y.mT).square().mean() * (n / (n - 1))
        )  # the entries of the diagonal are 0 and are not pairs
    return torch.stack(losses).mean()


def _step_by_pairs(basis: Tensor, weights: list[Tensor], lr: float) -> Tensor:
    """Compute :func:`cosine_step` from all pairs by autograd."""
    with torch.enable_grad():
        leaf = basis if basis.requires_grad else basis.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(cosine_loss(weights, leaf), leaf, create_graph=True)
        return basis - lr * gradient


class _CosineStep(torch.autograd.Function):
    """P − η·Σ_layers ∂L_P/∂P. :class:`_LayerGradient` computes both passes for one layer."""

    @staticmethod
    def forward(ctx: Any, lr: float, basis: Tensor, *weights: Tensor) -> Tensor:
        layers = [_LayerGradient(weight, basis, len(weights)) for weight in weights]
        ctx.lr, ctx.layers = lr, layers
        ctx.save_for_backward(basis, *weights)
        return basis - lr * torch.stack(
            [layer.gradient(weight) for layer, weight in zip(layers, weights, strict=True)]
        ).sum(0)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        basis, *weights = ctx.saved_tensors
        inputs = [basis, *weights]
        if torch.is_grad_enabled():
            differentiated = [x for x in inputs if x.requires_grad]
            result = _step_by_pairs(basis, weights, ctx.lr)
            gradients = iter(torch.autograd.grad(result, differentiated, grad, create_graph=True))
            return None, *(next(gradients) if x.requires_grad else None for x in inputs)
        with disable_autocast(grad.device.type):
            d_basis, d_weights = grad.clone() if ctx.needs_input_grad[1] else None, []
            for layer, weight in zip(ctx.layers, weights, strict=True):
                d_weight, d_z = layer.backward(weight, basis, grad, ctx.lr)
                d_weights.append(d_weight)
                if d_basis is not None:
                    d_basis += d_z.mT.matmul(weight).sum(1)
        return None, d_basis, *d_weights


class _LayerGradient:
    """The gradient of L_P with respect to the projected neurons z = Pw of one layer, and the derivative of this gradient.

    Attributes:
        x, length: Directions and lengths of the neurons.
        y, radius: Directions and lengths of the projected neurons, ``(count, groups, neurons, …)``.
        mixed: yᵀx.
        similarity: x(xᵀy).
        pull: ∂L_P/∂y = −4α(xxᵀ − yyᵀ)y with α = 1/(layers·count·groups·N(N − 1)).
        slope: ∂L_P/∂z, the component of the pull orthogonal to y divided by the radius.
    """

    def __init__(self, weight: Tensor, basis: Tensor, layers: int):
        groups, n, _ = weight.shape
        self.scale = -4 / (layers * len(basis) * groups * n * (n - 1))
        self.x, self.length = directions(weight)
        self.y, self.radius = directions(project(weight, basis))
        self.mixed = self.y.mT @ self.x
        self.similarity = self.x @ self.mixed.mT
        self.pull = self.scale * (self.similarity - self.y @ (self.y.mT @ self.y))
        self.slope = directions_backward(self.pull.clone(), self.y, self.radius)

    def gradient(self, weight: Tensor) -> Tensor:
        """Return ∂L_P/∂P, (count, k, d)."""
        return (self.slope.mT @ weight).sum(1)

    def backward(self, weight: Tensor, basis: Tensor, grad: Tensor, lr: float) -> tuple[Tensor, Tensor]:
        """Return the gradients of the neurons and of z from the gradient ``grad`` of the updated basis.

        The step depends on the weight directly through ∂L_P/∂P = slopeᵀ·w, and through the slope. Reverse mode goes from
        the slope to the pull, to y, and to z and x. The gradient of the weight is the sum of four products, which one
        matrix product computes: −η·slope·grad (direct), d_z·P (through z), and the two terms of x(xᵀy) divided by the
        length of w. The component of the last two along x is removed at the end, because x is normalized.
        """
        x, y, scale = self.x, self.y, self.scale
        d_slope = -lr * project(weight, grad)
        inverse = torch.where(self.radius > 0, 1 / self.radius.clamp_min(1e-20), 0)
        slope_radial, pull_radial = _dot(y, d_slope), _dot(y, self.pull)
        d_pull = (d_slope - y * slope_radial) * inverse
        d_y = -(pull_radial * d_slope + slope_radial * self.pull) * inverse
        mixed = d_pull.mT @ x
        similarity = x @ mixed.mT
        square, cross = y.mT @ y, y.mT @ d_pull
        d_y += scale * (similarity - y @ cross - d_pull @ square - y @ cross.mT)
        d_z = (d_y - y * _dot(y, d_y)) * inverse - y * (_dot(d_slope, self.slope) * inverse)
        factor = scale * torch.where(self.length > 0, 1 / self.length.clamp_min(1e-20), 0)
        left = torch.cat([-lr * self.slope, d_z, d_pull * factor, y * factor], -1)
        grad_and_basis = torch.stack([grad, basis]).unsqueeze(2).expand(-1, -1, len(weight), -1, -1)
        right = torch.cat([*grad_and_basis, self.mixed, mixed], -2)
        d_weight = left.permute(1, 2, 0, 3).flatten(2) @ right.transpose(0, 1).flatten(1, 2)
        radial = (_dot(d_pull, self.similarity) + _dot(y, similarity)).sum(0) * factor
        return d_weight.addcmul_(x, radial, value=-1), d_z


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return torch.linalg.vecdot(a, b).unsqueeze(-1)
