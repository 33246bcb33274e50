"""One step of descent on the loss of cosines (eq. 6.6), as a function of basis and neurons with its gradient by hand."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ...geometry import normalize
from ...geometry.fast_norms import directions, directions_backward
from ...geometry.numerics import disable_autocast
from .random import project


def cosine_step(basis: Float[Tensor, "count k d"], weights: list[Tensor], lr: float) -> Float[Tensor, "count k d"]:
    r"""Return P − η∂L_P/∂P with L_P = mean_{i≠j} (cos(w_i, w_j) − cos(Pw_i, Pw_j))² over bases, groups and layers  (eq. 6.6).

    With x = ŵ and y the directions of Pw, the gradient by y is a multiple of (xxᵀ − yyᵀ)y = x(xᵀy) − y(yᵀy): a few
    products with the k columns of y, and no matrix of all pairs. So is the gradient of the step itself, which an
    unrolled energy needs. That one can be differentiated again, by way of all pairs. ``weights`` are the neurons of
    layers that share the basis, (groups, neurons, d) each.

    >>> w, p = torch.randn(1, 5, 6), torch.randn(1, 3, 6)
    >>> cosine_step(p, [w], 0.1).shape
    torch.Size([1, 3, 6])
    """
    if torch.compiler.is_compiling():
        return _by_pairs(basis, weights, lr)
    return _CosineStep.apply(lr, basis, *weights)  # type: ignore[no-any-return, no-untyped-call]


def cosine_loss(weights: list[Tensor], basis: Float[Tensor, "count k d"]) -> Float[Tensor, ""]:
    """Return L_P of cosines from all pairs, differentiable as often as one likes."""
    losses = []
    for weight in weights:
        n = weight.shape[1]
        x, y = normalize(weight), normalize(project(weight, basis))
        losses.append((x @ x.mT - y @ y.mT).square().mean() * (n / (n - 1)))  # the diagonal is 0 and not a pair
    return torch.stack(losses).mean()


def _by_pairs(basis: Tensor, weights: list[Tensor], lr: float) -> Tensor:
    with torch.enable_grad():
        leaf = basis if basis.requires_grad else basis.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(cosine_loss(weights, leaf), leaf, create_graph=True)
        return basis - lr * gradient


class _CosineStep(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, lr: float, basis: Tensor, *weights: Tensor) -> Tensor:
        layers = [_Layer(weight, basis, len(weights)) for weight in weights]
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
            with torch.enable_grad():
                wanted = [x for x in inputs if x.requires_grad]
                found = iter(torch.autograd.grad(_by_pairs(basis, weights, ctx.lr), wanted, grad, create_graph=True))
            return None, *(next(found) if x.requires_grad else None for x in inputs)
        with disable_autocast(grad.device.type):
            of_basis, of_weights = grad.clone() if ctx.needs_input_grad[1] else None, []
            for layer, weight in zip(ctx.layers, weights, strict=True):
                of_weight, more = layer.backward(weight, basis, grad, ctx.lr)
                of_weights.append(of_weight)
                if of_basis is not None:
                    of_basis += more.mT.matmul(weight).sum(1)
        return None, of_basis, *of_weights


class _Layer:
    """The gradient of L_P by the projected neurons z = Pw of one layer, and how it changes with the neurons.

    Attributes:
        x, length: the directions of the neurons and their lengths.
        y, radius: those of the projected neurons, ``(count, groups, neurons, …)``.
        pull: ∂L_P/∂y = −4α(xxᵀ − yyᵀ)y with α = 1/(layers·count·groups·N(N − 1)).
        slope: ∂L_P/∂z, what of the pull is across y, over the radius.
    """

    def __init__(self, weight: Tensor, basis: Tensor, layers: int):
        groups, n, _ = weight.shape
        self.scale = -4 / (layers * len(basis) * groups * n * (n - 1))
        self.x, self.length = directions(weight)
        self.y, self.radius = directions(project(weight, basis))
        self.mixed = self.y.mT @ self.x  # yᵀx
        self.seen = self.x @ self.mixed.mT  # xxᵀy
        self.pull = self.scale * (self.seen - self.y @ (self.y.mT @ self.y))
        self.slope = directions_backward(self.pull.clone(), self.y, self.radius)

    def gradient(self, weight: Tensor) -> Tensor:
        """Return ∂L_P/∂P, (count, k, d)."""
        return (self.slope.mT @ weight).sum(1)

    def backward(self, weight: Tensor, basis: Tensor, grad: Tensor, lr: float) -> tuple[Tensor, Tensor]:
        """Compute the gradients with respect to the neurons and z from that of the updated basis."""
        x, y, scale = self.x, self.y, self.scale
        of_slope = -lr * project(weight, grad)
        inverse = torch.where(self.radius > 0, 1 / self.radius.clamp_min(1e-20), 0)
        along, pulled = _dot(y, of_slope), _dot(y, self.pull)
        of_pull = (of_slope - y * along) * inverse
        of_y = -(pulled * of_slope + along * self.pull) * inverse
        mixed = of_pull.mT @ x
        seen = x @ mixed.mT
        square, cross = y.mT @ y, y.mT @ of_pull
        of_y += scale * (seen - y @ cross - of_pull @ square - y @ cross.mT)
        of_z = (of_y - y * _dot(y, of_y)) * inverse - y * (_dot(of_slope, self.slope) * inverse)
        over = scale * torch.where(self.length > 0, 1 / self.length.clamp_min(1e-20), 0)
        left = torch.cat([-lr * self.slope, of_z, of_pull * over, y * over], -1)
        both = torch.stack([grad, basis]).unsqueeze(2).expand(-1, -1, len(weight), -1, -1)
        right = torch.cat([*both, self.mixed, mixed], -2)
        of_weight = left.permute(1, 2, 0, 3).flatten(2) @ right.transpose(0, 1).flatten(1, 2)
        radial = (_dot(of_pull, self.seen) + _dot(y, seen)).sum(0) * over
        return of_weight.addcmul_(x, radial, value=-1), of_z


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return torch.linalg.vecdot(a, b).unsqueeze(-1)
