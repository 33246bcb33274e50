"""Baselines of the orthogonal benchmarks: hand-written computations of R and its gradient, and the same with autograd."""

from collections.abc import Callable

import torch
from torch import Tensor, nn


def compute_dense_floor(x: Tensor, g: Tensor) -> Tensor:
    """Compute R = 2(I − A)⁻¹ − I, and return the gradient of ⟨R, g⟩ with respect to x, without autograd."""
    r = (x.mT - x).div_(2)
    r.diagonal().add_(1)
    r = torch.linalg.inv(r).mul_(2)
    r.diagonal().sub_(1)
    b = r.mT.clone()
    b.diagonal().add_(1)
    gradient = (b @ g) @ b
    return (gradient - gradient.mT).div_(4)


def compute_thin_floor(x: Tensor, v: Tensor, g: Tensor) -> Tensor:
    """Compute R·V with one LU factorization and thin solves, and return the gradient of ⟨R·V, g⟩, without autograd."""
    transposed = (x - x.mT).div_(2)
    transposed.diagonal().add_(1)
    lu, pivots = torch.linalg.lu_factor(transposed.mT)
    solved = torch.linalg.lu_solve(lu, pivots, v.mT)
    (2 * solved.mT).sub_(v)
    gradient = torch.linalg.lu_solve(lu, pivots, g.mT, adjoint=True) @ solved.mT
    return gradient - gradient.mT


def make_gradient_work(function: Callable[[Tensor], Tensor], x: Tensor, g: Tensor) -> Callable[[], object]:
    """Return work that computes ``function(x)`` and its gradient for g with autograd."""
    leaf = x.clone().requires_grad_()
    return lambda: torch.autograd.grad(function(leaf), leaf, g)


def make_weight_work(layer: nn.Module, g: Tensor) -> Callable[[], object]:
    """Return work that computes a layer's weight and the gradient of its parameters for g with autograd."""
    parameters = [p for name, p in layer.named_parameters() if name != "bias"]
    return lambda: torch.autograd.grad(layer.weight, parameters, g, allow_unused=True)
