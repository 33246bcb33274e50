"""The later members of the family: other ways to say that directions are spread evenly, all to be minimised.

Each is a function of a weight matrix, and with :class:`Penalty` a regulariser.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from ..geometry import angle, normalize, tangent, uniform
from ..geometry.directions import directions, through_direction
from .close import wide
from .cover import deepest_hole
from .hyperspherical import as_neurons, mean_energies
from .kernels import Gaussian, Riesz
from .lbfgs import lbfgs
from .nearest import nearest_pairs


def maximum_separation(weight: Float[Tensor, "neurons *dim"]) -> Float[Tensor, ""]:
    r"""−min_{i≠j} ‖ŵ_i − ŵ_j‖²: only the nearest pair counts, and is pushed apart.

    >>> maximum_separation(torch.eye(3))
    tensor(-2.)
    """
    rows = as_neurons(weight)
    i, j = nearest_pairs(rows, 1)[0][0]
    x, y = normalize(rows[i].to(wide(rows))), normalize(rows[j].to(wide(rows)))
    return -(x - y).square().sum().to(_result(rows))


def polarization(
    weight: Float[Tensor, "neurons *dim"], s: float = 2, probes: int = 16, seed: int = 0
) -> Float[Tensor, ""]:
    r"""−min_u (1/N)·Σ_i f_s(‖u − ŵ_i‖): the point of least potential is to have more of it.

    That point is sought from ``probes`` starts, drawn with ``seed``.

    >>> polarization(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))  # least at (0, ±1)
    tensor(-0.5000)
    """
    kernel, rows = Riesz(s), as_neurons(weight)
    x = normalize(rows.to(wide(rows)))
    fixed = x.detach()

    def potential(u: Tensor) -> tuple[Tensor, Tensor]:
        unit, lengths = directions(u)
        q = (2 - 2 * unit @ fixed.T).clamp_min(kernel.floor**2)
        pull = -2 * kernel.slope(q) @ fixed / len(fixed)
        return kernel.value(q).mean(1), through_direction(pull, unit, lengths)

    with torch.no_grad():
        start = uniform(probes, x.shape[1], generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(x)
        points, values = lbfgs(potential, start, steps=60, tolerance=1e-8)
        darkest = normalize(points[values.argmin()])
    # At a minimum over u the derivative by the neurons is the one at fixed u.
    return -kernel(2 - 2 * x @ darkest).mean().to(_result(rows))


def covering(weight: Float[Tensor, "neurons *dim"], probes: int = 16, seed: int = 0) -> Float[Tensor, ""]:
    r"""max_u min_i arccos(u·ŵ_i), the radius of the deepest hole found from ``probes`` starts; a good cover has a small one.

    At the centre of a hole the pulls of the neurons on its rim cancel; the weights with which they do are those of the
    gradient, which therefore closes the hole from all sides at once.

    >>> covering(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))
    tensor(1.5708)
    """
    rows = as_neurons(weight)
    x = rows.to(wide(rows))
    center = deepest_hole(rows, probes, seed).to(x)
    angles = angle(x, center)
    with torch.no_grad():
        rim = angles < angles.min() + 1e-3
        pulls = normalize(tangent(center, x[rim]))
        system = torch.cat([pulls.T, torch.ones(1, len(pulls), dtype=x.dtype, device=x.device)])
        target = torch.zeros(len(system), dtype=x.dtype, device=x.device)
        target[-1] = 1
        shares = (torch.linalg.pinv(system) @ target).clamp_min(0)
        shares = shares / shares.sum()
    return (shares @ angles[rim]).to(_result(rows))


def gram_log_determinant(
    weight: Float[Tensor, "neurons *dim"], t: float = 1.0, ridge: float = 1e-6
) -> Float[Tensor, ""]:
    r"""−(1/N)·log det(K + ridge·I), K_ij = exp(−t‖ŵ_i − ŵ_j‖²).

    It is 0 if all are far apart and large if neurons depend on each other; ``ridge`` keeps it finite for duplicates.

    >>> gram_log_determinant(torch.eye(2)) < gram_log_determinant(torch.tensor([[1.0, 0.0], [1.0, 0.1]]))
    tensor(True)
    """
    kernel, rows = Gaussian(t), as_neurons(weight)
    if not ridge > 0:
        raise ValueError(f"ridge must be a number > 0, got {ridge!r}")
    with torch.autocast(rows.device.type, enabled=False):
        x = normalize(rows.to(wide(rows)))
        gram = kernel.value(2 - 2 * x @ x.T) + ridge * torch.eye(len(x), dtype=x.dtype, device=x.device)
        factor = torch.linalg.cholesky(gram)
        return (-2 * factor.diagonal().log().mean()).to(_result(rows))


def gaussian_uniformity(weight: Float[Tensor, "neurons *dim"], t: float = 2.0) -> Float[Tensor, ""]:
    r"""log mean_{i≠j} exp(−t‖ŵ_i − ŵ_j‖²), the logarithm of the Gaussian potential; t = 2 is usual for features.

    >>> gaussian_uniformity(torch.eye(3))
    tensor(-4.0000)
    """
    return mean_energies(as_neurons(weight).unsqueeze(0), Gaussian(t)).squeeze(0).log()


def alignment(x: Float[Tensor, "pairs dim"], y: Float[Tensor, "pairs dim"], alpha: float = 2.0) -> Float[Tensor, ""]:
    r"""mean_i ‖x̂_i − ŷ_i‖^α over positive pairs: how near features that belong together are.

    >>> alignment(torch.eye(2), torch.eye(2).flip(0))
    tensor(2.)
    """
    if x.shape != y.shape:
        raise ValueError(f"x and y must have the same shape, got {tuple(x.shape)} and {tuple(y.shape)}")
    if not alpha > 0:
        raise ValueError(f"alpha must be a number > 0, got {alpha!r}")
    work = _result(x)
    square = (normalize(x.to(work)) - normalize(y.to(work))).square().sum(-1)
    # The root of 0 has no slope; equal features need no pull.
    return torch.where(square > 0, torch.where(square > 0, square, 1) ** (alpha / 2), 0).mean()


def _result(x: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)
