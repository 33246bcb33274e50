"""Search for points of least energy on the sphere: Whyte's (s = 0), Thomson's (s = 1) and Tammes' (s = ∞) problem."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from ..geometry import accumulation_dtype, normalize
from .hyperspherical import as_neurons
from .kernels import Distance, Riesz, choose_kernel
from .lbfgs import lbfgs
from .riesz_points import find_riesz_points, point_objective
from .tammes import find_tammes_points

# Numbers of points for which random starts rarely find the best arrangement and a hop takes about a second.
POINT_COUNTS_WITH_HOPS = range(80, 251)


def minimize_energy(
    n: int,
    dim: int,
    s: float = 1,
    half_space: bool = False,
    *,
    starts: int | None = None,
    hops: int | None = None,
    tolerance: float = 1e-9,
    steps: int = 2000,
    seed: int = 0,
    device: torch.device | str | None = None,
) -> tuple[Float[Tensor, "n dim"], Float[Tensor, ""]]:
    r"""Return ``n`` points on the unit sphere of R^dim with the least energy found, and that energy, in float64.

    The energy is Σ_{i<j} f_s(‖x_i − x_j‖) over unordered pairs, in half space of the 2n points ±x_i. For ``s = math.inf``
    the points have the largest smallest angle found, and the second value is that angle in radians, exact up to rounding.
    The number of local minima grows quickly with ``n``. For hundreds of points the result is a good arrangement, but not
    always the best.

    Args:
        n: Number of points, at least 2.
        dim: Dimension of the space, at least 2.
        s: Power of the energy; ``math.inf`` for the largest smallest angle.
        half_space: Whether to use the energy of the points and their antipodes.
        starts: Number of random starts. For finite ``s``, L-BFGS minimizes all of them together; the default is 48 up to
            n = 141 and falls to 1 beyond. For ``s = math.inf`` they are rounded up to independent searches of 32 starts,
            so more starts never give a smaller angle; the default is 64 up to n = 80 and 32 beyond.
        hops: Maximum number of rounds of basin hopping, which disturb and relax the best arrangements. A search with hops
            also starts from symmetric arrangements. It ends early after several rounds without improvement, and for finite
            ``s`` skips the hops if enough starts of different kinds reach the same energy. The default is 16 for
            ``s = math.inf`` and from n = 80 to 250. Otherwise it is 0, because fewer points do not need hops and hops of
            more points are slow.
        tolerance: A start has converged when its largest gradient entry is below this share of its energy.
        steps: Maximum number of steps per start.
        seed: Seed of the starts; the same seed gives the same points.
        device: Device of the search.

    >>> points, energy = minimize_energy(4, 3)  # the tetrahedron
    >>> f"{energy:.9f}"
    '3.674234614'
    """
    if n < 2 or dim < 2:
        raise ValueError(f"minimize_energy needs n ≥ 2 points in dim ≥ 2 dimensions, got n={n}, dim={dim}")
    if starts is None:
        starts = (64 if n <= 80 else 32) if s == math.inf else min(48, max(1, 960_000 // n**2))
    if hops is None:
        hops = 16 if s == math.inf else 16 if n in POINT_COUNTS_WITH_HOPS else 0
    for name, value, least in (("starts", starts, 1), ("hops", hops, 0), ("steps", steps, 1)):
        if value < least:
            raise ValueError(f"{name} must be a number ≥ {least}, got {value!r}")
    if not tolerance > 0:
        raise ValueError(f"tolerance must be a number > 0, got {tolerance!r}")
    if s == math.inf:
        points = find_tammes_points(n, dim, half_space, starts=starts, hops=hops, steps=steps, seed=seed, device=device)
        return points, smallest_angle(points, half_space)
    kernel = Riesz(s)
    points, energy = find_riesz_points(
        n,
        dim,
        kernel,
        half_space,
        starts=starts,
        hops=hops,
        tolerance=tolerance,
        steps=steps,
        seed=seed,
        device=device,
    )
    antipodal = n * kernel.value(torch.tensor(4.0, dtype=torch.float64)).item() if half_space else 0
    return points, energy + antipodal


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
    """Rotate the neurons of a layer in place so that their energy decreases, keep their lengths, and return the weight.

    Takes at most ``steps`` steps of L-BFGS from the current directions. Zero rows do not change. The initialization of
    orthogonal training uses it in full and in half space.

    >>> from hypersphere.energy import hyperspherical_energy
    >>> w = torch.randn(8, 3, generator=torch.Generator().manual_seed(0))
    >>> before = hyperspherical_energy(w)
    >>> bool(hyperspherical_energy(refine_(w)) < before)
    True
    """
    kernel, rows = choose_kernel(s, distance), as_neurons(weight)
    lengths = torch.linalg.vector_norm(rows.double(), dim=1, keepdim=True)
    start = normalize(rows.to(accumulation_dtype(rows)))
    flat, _ = lbfgs(
        point_objective(kernel, half_space, start.shape[1]), start.view(1, -1), tolerance=tolerance, steps=steps
    )
    weight.copy_((normalize(flat.view(start.shape)) * lengths).to(weight.dtype).view(weight.shape))
    return weight


def smallest_angle(points: Float[Tensor, "n dim"], half_space: bool = False) -> Float[Tensor, ""]:
    """Return the smallest angle between two points in radians; in half space, between two of the lines ±x_i.

    >>> smallest_angle(torch.eye(3))
    tensor(1.5708)
    """
    x = normalize(points)
    cos = x @ x.T
    i, j = torch.triu_indices(len(x), len(x), 1, device=x.device)
    nearest = (cos[i, j].abs() if half_space else cos[i, j]).argmax()
    a, b = x[i[nearest]], x[j[nearest]]
    sign = -1 if half_space and cos[i[nearest], j[nearest]] < 0 else 1
    return 2 * torch.asin(torch.linalg.vector_norm(a - sign * b) / 2)
