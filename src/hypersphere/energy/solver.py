"""Points of least energy on the sphere, found directly: Whyte's (s = 0), Thomson's (s = 1) and Tammes' (s = ∞) problems."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from ..geometry import normalize, uniform
from .hyperspherical import as_neurons
from .kernels import Distance, Kernel, Riesz, riesz_kernel
from .lbfgs import Objective, lbfgs
from .pair_sums import value_and_gradient
from .tammes import spread


def minimize_energy(
    n: int,
    dim: int,
    s: float = 1,
    half_space: bool = False,
    *,
    starts: int | None = None,
    tolerance: float = 1e-9,
    steps: int = 2000,
    seed: int = 0,
    device: torch.device | str | None = None,
) -> tuple[Float[Tensor, "n dim"], Float[Tensor, ""]]:
    r"""``n`` points of the unit sphere of R^dim with the least energy found, and that energy, in float64.

    The energy is Σ_{i<j} f_s(‖x_i − x_j‖) over unordered pairs — of the 2n points ±x_i in half space. For ``s = math.inf``
    the points have the largest smallest angle, and the second value is that angle in radians.

    Args:
        starts: random starting points, all minimised together by L-BFGS; by default 48 up to n = 79 and fewer beyond,
            down to 1. Minima multiply with ``n``: the best of a few starts of hundreds of points is a good one, not the best.
        tolerance: a start is done when its largest gradient entry is below this share of its energy.
        steps: limit on the steps of each start.
        seed: of the starting points; the same seed gives the same points.

    >>> points, energy = minimize_energy(4, 3)  # the tetrahedron
    >>> f"{energy:.9f}"
    '3.674234614'
    """
    if n < 2 or dim < 2:
        raise ValueError(f"minimize_energy needs n ≥ 2 points in dim ≥ 2 dimensions, got n={n}, dim={dim}")
    starts = min(48, max(1, 300_000 // n**2)) if starts is None else starts
    for name, value in (("starts", starts), ("steps", steps)):
        if value < 1:
            raise ValueError(f"{name} must be a number ≥ 1, got {value!r}")
    if not tolerance > 0:
        raise ValueError(f"tolerance must be a number > 0, got {tolerance!r}")
    generator = torch.Generator().manual_seed(seed)
    start = uniform(starts * n, dim, generator=generator, dtype=torch.float64).view(starts, n, dim).to(device)
    if s == math.inf:
        points = spread(start, half_space, tolerance, min(steps, 100))
        return points, smallest_angle(points, half_space)
    kernel = Riesz(s)
    flat, energies = lbfgs(_objective(kernel, half_space, dim), start.flatten(1), tolerance=tolerance, steps=steps)
    best = energies.argmin()
    antipodal = n * kernel.value(torch.tensor(4.0, dtype=torch.float64)).item() if half_space else 0
    return normalize(flat[best].view(n, dim)), energies[best] + antipodal


@torch.no_grad()
def refine_(
    weight: Float[Tensor, "neurons *dim"],
    s: float = 2,
    half_space: bool = False,
    *,
    distance: Distance = "euclidean",
    steps: int = 100,
    tolerance: float = 1e-6,
) -> Float[Tensor, "neurons *dim"]:
    """Turn the neurons of a layer, in place and without changing their lengths, so that their energy falls; the weight itself.

    At most ``steps`` steps of L-BFGS from where they are. Zero rows stay. The initialisation of orthogonal training uses it
    with either space.

    >>> from hypersphere.energy import hyperspherical_energy
    >>> w = torch.randn(8, 3, generator=torch.Generator().manual_seed(0))
    >>> before = hyperspherical_energy(w)
    >>> bool(hyperspherical_energy(refine_(w)) < before)
    True
    """
    kernel, rows = riesz_kernel(s, distance), as_neurons(weight)
    lengths = torch.linalg.vector_norm(rows.double(), dim=1, keepdim=True)
    start = normalize(rows.to(torch.promote_types(rows.dtype, torch.float32)))
    flat, _ = lbfgs(_objective(kernel, half_space, start.shape[1]), start.view(1, -1), tolerance=tolerance, steps=steps)
    weight.copy_((normalize(flat.view(start.shape)) * lengths).to(weight.dtype).view(weight.shape))
    return weight


def smallest_angle(points: Float[Tensor, "n dim"], half_space: bool = False) -> Float[Tensor, ""]:
    """The least angle between two of the points, of the points and their antipodes in half space, in radians.

    >>> smallest_angle(torch.eye(3))
    tensor(1.5708)
    """
    cos = normalize(points) @ normalize(points).T
    i, j = torch.triu_indices(len(points), len(points), 1, device=points.device)
    x, y = normalize(points)[i], normalize(points)[j]
    nearest = (cos[i, j].abs() if half_space else cos[i, j]).argmax()
    sign = -1 if half_space and cos[i[nearest], j[nearest]] < 0 else 1
    return 2 * torch.asin(torch.linalg.vector_norm(x[nearest] - sign * y[nearest]) / 2)


def _objective(kernel: Kernel, half_space: bool, dim: int) -> Objective:
    """The energy over unordered pairs, and its gradient by flattened, unnormalized points."""

    def objective(flat: Tensor) -> tuple[Tensor, Tensor]:
        sums, gradient = value_and_gradient(flat.unflatten(1, (-1, dim)), kernel, half_space)
        # Half-space sums run over ordered pairs of neurons, each standing for two unordered pairs of points ±x.
        share = 1.0 if half_space else 0.5
        return share * sums, share * gradient.flatten(1)

    return objective
