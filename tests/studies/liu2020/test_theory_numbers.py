import math

import pytest
import torch

from hypersphere.geometry import uniform
from studies.liu2020.claims import theory_numbers as numbers


def test_the_condition_of_the_product_is_that_of_the_hessian_printed_in_b_1():
    """The blocks VᵀV ⊗ I, UᵀU ⊗ I and their coupling are assembled by hand at the optimum."""
    generator = torch.Generator().manual_seed(4)
    u, v = (uniform(n, 3, dtype=torch.float64, generator=generator) for n in (6, 5))
    jacobian = torch.zeros(30, 33, dtype=torch.float64)  # of the entries of UVᵀ with respect to those of U and V
    for i in range(6):
        for j in range(5):
            jacobian[5 * i + j, 3 * i : 3 * i + 3] = v[j]
            jacobian[5 * i + j, 18 + 3 * j : 21 + 3 * j] = u[i]
    values = torch.linalg.eigvalsh(jacobian.T @ jacobian)
    expected = values[-1] / values[values > 1e-9 * values[-1]][0]
    assert numbers.fit_condition_exponent("product", 4)["metrics"]["condition"] == pytest.approx(
        expected.item(), rel=1e-6
    )


def test_scaling_leaves_the_cosines_condition_alone_only_where_lengths_are_normalized():
    assert abs(numbers.fit_condition_exponent("cosine", 0)["metrics"]["exponent"]) < 1e-9
    assert numbers.fit_condition_exponent("cosine, lengths kept", 0)["metrics"]["exponent"] > 2


def test_growth_finds_the_known_energy_of_the_octahedron():
    curve = numbers.fit_energy_exponent(1.0, 0, largest=24)["curve"]
    assert curve["step"] == [6, 12, 24]
    assert curve["energy"][0] == pytest.approx(2 * 9.985281374, rel=1e-6)


def test_stated_probabilities_are_those_of_6_10_and_6_11():
    three, four = (numbers.measure_angle_bounds(t, 100, 0, draws=20)["metrics"]["stated"] for t in (3, 4))
    assert three == pytest.approx((1 - 2 * math.exp(-100 * 0.25 / 8)) ** 2)
    assert four == pytest.approx(1 - 6 * math.exp(-50 * (0.125 - 0.125 / 3)))
    assert numbers.measure_angle_bounds(4, 3, 0, draws=20)["metrics"]["stated"] == 0


def test_the_least_singular_value_is_that_of_d_by_brute_force():
    found = numbers.measure_neuron_spread("random", 2, count=30, dim=4, samples=6)["metrics"]["least_singular"]
    generator = torch.Generator().manual_seed(2)
    w = torch.randn(30, 4, generator=generator, dtype=torch.float64)
    x = uniform(6, 4, generator=generator, dtype=torch.float64)
    d = torch.stack([torch.cat([(w_i @ x_j > 0) * x_j for w_i in w]) for x_j in x], 1)
    assert found == pytest.approx(torch.linalg.svdvals(d)[-1].item() / math.sqrt(30))


def test_holes_and_rotations():
    assert numbers.measure_holes(0.0, 0, n=500)["metrics"]["ratio"] == pytest.approx(996 / 1000)  # Euler: 2N − 4 facets
    assert numbers.measure_energy_change("cayley", 0)["metrics"]["energy_drift"] < 1e-4
    assert numbers.measure_energy_change("unconstrained", 0)["metrics"]["energy_drift"] > 0.1
