"""Measure the error of Newton–Schulz steps by the number of matrix products.

python benchmarks/orthogonal_polar.py --record
"""

import numpy as np
import torch
from _harness import make_parser, write_report

from hypersphere.orthogonal import orthogonalize, polar_coefficients
from hypersphere.orthogonal.muon import JORDAN_COEFFICIENTS

LOWER = 1e-3  # relative to the largest singular value; Polar Express' choice for Muon
SHAPES = ((512, 512), (512, 2048))


def compute_worst_error(coefficients: tuple[tuple[float, ...], ...]) -> float:
    """Return the largest |σ − 1| after the steps, over singular values from 10⁻³ to 1."""
    x = np.geomspace(LOWER, 1, 20001)
    for step in coefficients:
        x = sum(c * x ** (2 * i + 1) for i, c in enumerate(step))
    return float(np.abs(x - 1).max())


def measure_error(iteration: str, steps: int, shape: tuple[int, int]) -> float:
    """Return the relative error of the polar factor of a Gaussian matrix, in float32 against an SVD in float64."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    u, _, vh = torch.linalg.svd(x.double(), full_matrices=False)
    return float((orthogonalize(x, steps, iteration=iteration).double() - u @ vh).norm() / (u @ vh).norm())


def main() -> None:
    args = make_parser(__doc__).parse_args()
    torch.set_num_threads(args.threads)
    rows: list[list[object]] = []
    for steps in range(3, 10):
        fixed, best = (JORDAN_COEFFICIENTS,) * steps, polar_coefficients(steps, LOWER)
        cubic = polar_coefficients(3 * steps // 2, LOWER, 3)
        errors = [f"{compute_worst_error(each):.2g}" for each in (fixed, best, cubic)]
        found = [f"{measure_error(name, steps, s):.2g}" for s in SHAPES for name in ("jordan", "polar_express")]
        rows.append([steps, *errors, *found])
    header = ["steps", "Jordan, worst", "minimax quintic, worst", "minimax cubic of equal cost, worst"]
    header += [f"{name}, {m}×{n}" for m, n in SHAPES for name in ("Jordan", "minimax quintic")]
    notes = (
        "Worst: largest |σ − 1| over singular values from 10⁻³ to 1 of a matrix divided by its largest. A quintic step is "
        "three products of matrices, a cubic one two, so 3k/2 cubic steps cost as much as k quintic ones. The last columns "
        "are relative errors of the whole factor, float32, against an SVD in float64; Muon divides by the Frobenius norm, "
        "so most singular values start far below 1. For an accuracy of rounding use `newton_schulz`."
    )
    how = "accuracy only, no times."
    write_report("orthogonal_polar", "Newton–Schulz steps: accuracy by their number", header, rows, args, notes, how)


if __name__ == "__main__":
    main()
