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
    r"""Return the path of each neuron under gradient descent on the energy of β_i·ŵ_i  (eq. D.10), the start included.

    A neuron with a large β is pushed less and stays nearly where it was. Figure D.1 has ten neurons in three dimensions
    with β₁ = 1, 2, 4, 10 and the others 1; figure D.2 has β₁ = β₂. The same ``seed`` gives the same start, whatever β.
    Liu (2020) does not say which rate and how many steps. Computed in float64; what descends is the energy for
    each neuron, the sum over ordered pairs over the number of neurons.

    Args:
        importance: β, one number > 0 for each neuron.
        dim: Dimension of the neurons.
        s: Power of the kernel.
        steps: Steps of gradient descent; after each the neurons are normalized.
        lr: Learning rate of the descent.
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
