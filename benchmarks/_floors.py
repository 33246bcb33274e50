"""The least that an orthogonal matrix and its gradient cost, and ours through autograd, for the scripts that compare them."""

from collections.abc import Callable

import torch
from torch import Tensor, nn


def dense_floor(x: Tensor, g: Tensor) -> Tensor:
    """R = 2(I − A)⁻¹ − I and its gradient for g, by hand and without autograd."""
    r = (x.mT - x).div_(2)
    r.diagonal().add_(1)
    r = torch.linalg.inv(r).mul_(2)
    r.diagonal().sub_(1)
    b = r.mT.clone()
    b.diagonal().add_(1)
    gradient = (b @ g) @ b
    return (gradient - gradient.mT).div_(4)


def thin_floor(x: Tensor, v: Tensor, g: Tensor) -> Tensor:
    """R·V by one LU and thin solves, and its gradient for g, by hand and without autograd."""
    transposed = (x - x.mT).div_(2)
    transposed.diagonal().add_(1)
    lu, pivots = torch.linalg.lu_factor(transposed.mT)
    solved = torch.linalg.lu_solve(lu, pivots, v.mT)
    (2 * solved.mT).sub_(v)
    gradient = torch.linalg.lu_solve(lu, pivots, g.mT, adjoint=True) @ solved.mT
    return gradient - gradient.mT


def differentiated(function: Callable[[Tensor], Tensor], x: Tensor, g: Tensor) -> Callable[[], object]:
    """The function of x and its gradient for g, through autograd."""
    leaf = x.clone().requires_grad_()
    return lambda: torch.autograd.grad(function(leaf), leaf, g)


def weight_and_gradient(layer: nn.Module, g: Tensor) -> Callable[[], object]:
    """A layer's weight and the gradient of its parameters for g, through autograd."""
    parameters = [p for name, p in layer.named_parameters() if name != "bias"]
    return lambda: torch.autograd.grad(layer.weight, parameters, g, allow_unused=True)
