"""Paths of neurons under gradient descent on their energy: the data of figures D.1 and D.2."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from ..geometry import normalize, uniform
from .hyperspherical import hyperspherical_energy


def weighted_trajectories(
    importance: Sequence[float] | Float[Tensor, " neurons"],
    dim: int = 3,
    s: float = 2,
    steps: int = 200,
    lr: float = 0.05,
    seed: int = 0,
) -> Float[Tensor, "iterates neurons dim"]:
    r"""Return the path of each neuron under gradient descent on the energy of β_i·ŵ_i  (eq. D.10), including the start.

    A neuron with a large β is repelled less and hardly moves. Figure D.1 has ten neurons in three dimensions with
    β₁ = 1, 2, 4, 10 and all other β = 1. Figure D.2 has β₁ = β₂. The start depends only on ``seed``, not on β. Liu (2020)
    gives neither the learning rate nor the number of steps. The descent minimizes the sum over ordered pairs divided by
    the number of neurons, in float64.

    Args:
        importance: β, one number > 0 per neuron.
        dim: Dimension of the neurons.
        s: Power of the kernel.
        steps: Number of steps of gradient descent. The neurons are normalized after each step.
        lr: Learning rate.
        seed: Seed of the start, which is uniform on the sphere.

    >>> paths = weighted_trajectories([10.0, *[1.0] * 9], steps=20)
    >>> moved = (paths[-1] - paths[0]).norm(dim=1)
    >>> paths.shape, bool(moved[0] < moved[1:].mean())
    (torch.Size([21, 10, 3]), True)
    """
    beta = torch.as_tensor(importance, dtype=torch.float64)
    if beta.ndim != 1 or len(beta) < 2 or dim < 2:
        raise ValueError(f"weighted_trajectories needs two or more neurons of dim ≥ 2, got {len(beta)} of dim {dim}")
    if steps < 1 or not lr > 0:
        raise ValueError(f"steps must be ≥ 1 and lr > 0, got steps={steps!r}, lr={lr!r}")
    x = uniform(len(beta), dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    path = [x]
    for _ in range(steps):
        x = x.detach().requires_grad_()
        energy = hyperspherical_energy(x, s, importance=beta) * (len(beta) - 1)
        (gradient,) = torch.autograd.grad(energy, x)
        x = normalize(x.detach() - lr * gradient)
        path.append(x)
    return torch.stack(path)
