"""Optimal coefficients of Newton–Schulz steps for a given range of singular values."""

import functools

import numpy as np

WIDEN = 1.01  # factor by which every interval after the first is widened, so that rounding cannot leave it
_TOLERANCE = 1e-12


@functools.lru_cache(maxsize=64)
def polar_coefficients(steps: int, lower: float = 1e-3, degree: int = 5) -> tuple[tuple[float, ...], ...]:
    r"""Return the coefficients of steps p(σ) = aσ + bσ³ (+ cσ⁵) whose composition is closest to 1 on [lower, 1].

    Each p is the odd polynomial with the smallest maximum error |p(σ) − 1| on the range of the previous step. The greedy
    composition of these polynomials is optimal (Polar Express, arXiv:2505.16932; for degree 3, CANS, arXiv:2506.10935).
    Each polynomial is computed by the Remez exchange algorithm: the errors at the ends and at the interior extrema have
    equal size and alternating signs.

    Args:
        steps: Number of steps.
        lower: Smallest singular value, relative to the largest, that must approach 1.
        degree: Degree of the polynomials, 3 or 5.

    Returns:
        The coefficients of σ, σ³ (and σ⁵) for each step.

    Raises:
        ValueError: If an argument is out of range.

    >>> [[round(c, 3) for c in step] for step in polar_coefficients(2)]
    [[8.47, -25.108, 18.629], [4.143, -3.019, 0.553]]
    """
    if steps < 1:
        raise ValueError(f"steps must be an integer ≥ 1, got {steps!r}")
    if not 0 < lower < 1:
        raise ValueError(f"lower must be a number between 0 and 1, got {lower!r}")
    if degree not in (3, 5):
        raise ValueError(f"degree must be 3 or 5, got {degree!r}")
    low, high, coefficients_by_step = lower, 1.0, []
    for _ in range(steps):
        coefficients, error = _find_best_polynomial(low, high, degree)
        coefficients_by_step.append(tuple(float(c) for c in coefficients))
        low, high = (1 - error) / WIDEN, (1 + error) * WIDEN
    return tuple(coefficients_by_step)


def _find_best_polynomial(low: float, high: float, degree: int) -> tuple[np.ndarray, float]:
    """Return the optimal coefficients on [low, high] and their maximum error."""
    powers = np.arange(1, degree + 1, 2)
    points = np.linspace(low, high, len(powers) + 1)
    signs = (-1.0) ** np.arange(len(points))  # alternating, starting below 1 at the lower end
    error = np.inf
    while True:
        system = np.hstack([points[:, None] ** powers, signs[:, None]])
        *coefficients, levelled_error = np.linalg.solve(system, np.ones(len(points)))
        if abs(abs(levelled_error) - error) <= _TOLERANCE:
            return np.array(coefficients), abs(levelled_error)
        error = abs(levelled_error)
        slope = (np.array(coefficients) * powers)[::-1]  # coefficients of the derivative, a polynomial in σ²
        squares = np.roots(slope)
        inner = np.sort(np.sqrt(squares.real.clip(low**2, high**2)))
        points = np.concatenate([[low], inner, [high]])
