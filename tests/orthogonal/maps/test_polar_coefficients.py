import itertools

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from hypersphere.orthogonal import orthogonalize, polar_coefficients


def best_by_linear_program(low, high, degree):
    """Return the minimax error of an odd polynomial on a grid: minimize E with |p(x) − 1| ≤ E."""
    x = np.linspace(low, high, 4001)
    powers = x[:, None] ** np.arange(1, degree + 1, 2)
    bounds = np.ones((len(x), 1))
    matrix = np.block([[powers, -bounds], [-powers, -bounds]])
    target = np.concatenate([np.ones(len(x)), -np.ones(len(x))])
    cost = np.zeros(matrix.shape[1])
    cost[-1] = 1
    return linprog(cost, A_ub=matrix, b_ub=target, bounds=(None, None)).x


@pytest.mark.parametrize("degree", [3, 5])
@pytest.mark.parametrize("lower", [0.5, 1e-2, 1e-3])
def test_a_step_is_the_best_polynomial(lower, degree):
    (found,) = polar_coefficients(1, lower, degree)
    *expected, error = best_by_linear_program(lower, 1.0, degree)
    assert np.allclose(found, expected, rtol=2e-3)
    x = np.linspace(lower, 1, 10001)
    reached = np.abs(sum(c * x ** (2 * i + 1) for i, c in enumerate(found)) - 1).max()
    assert reached == pytest.approx(error, rel=1e-4)


@pytest.mark.parametrize("degree", [3, 5])
def test_the_error_falls_with_every_step(degree):
    errors = []
    for steps in range(1, 9):
        x = np.geomspace(1e-2, 1, 2001)
        for step in polar_coefficients(steps, 1e-2, degree):
            x = sum(c * x ** (2 * i + 1) for i, c in enumerate(step))
        errors.append(np.abs(x - 1).max())
    assert all(later < 0.99 * sooner for sooner, later in itertools.pairwise(errors[:7]))
    assert errors[-1] < (1e-3 if degree == 3 else 1e-7)


def test_nearer_to_the_polar_factor_than_one_set_of_coefficients():
    x = torch.randn(3, 40, 24, dtype=torch.float64)
    u, _, vh = torch.linalg.svd(x, full_matrices=False)
    error = {name: (orthogonalize(x, 6, iteration=name) - u @ vh).abs().max() for name in ("jordan", "polar_express")}
    assert error["polar_express"] < 0.05 * error["jordan"]


@pytest.mark.untyped
@pytest.mark.parametrize("arguments", [(0,), (5, 0.0), (5, 1.0), (5, 1e-3, 4)])
def test_refuses(arguments):
    with pytest.raises(ValueError, match="must be"):
        polar_coefficients(*arguments)
