import pytest
import torch

from hypersphere.geometry import normalize, slerp
from hypersphere.models import SphereVelocity, geodesic_velocity, integrate_flow


def points(n, dim, seed=0):
    source = torch.Generator().manual_seed(seed)
    return normalize(torch.randn(n, dim, generator=source, dtype=torch.float64))


@pytest.mark.parametrize("dim", [2, 3, 20])
def test_the_velocity_is_the_derivative_of_the_arc(dim):
    start, end = points(6, dim), points(6, dim, 1)
    t = torch.rand(6, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    x, velocity = geodesic_velocity(start, end, t)
    h = 1e-6
    difference = (slerp(start, end, t + h) - slerp(start, end, t - h)) / (2 * h)
    torch.testing.assert_close(x, slerp(start, end, t))
    torch.testing.assert_close(velocity, difference, atol=1e-8, rtol=1e-7)
    assert (velocity * x).sum(1).abs().max() < 1e-12
    angle = (start * end).sum(1).arccos()
    torch.testing.assert_close(velocity.norm(dim=1), angle)
    # the closed form with sines
    closed = (angle / angle.sin())[:, None] * (
        ((t * angle).cos())[:, None] * end - (((1 - t) * angle).cos())[:, None] * start
    )
    torch.testing.assert_close(velocity, closed, atol=1e-9, rtol=1e-7)


def test_equal_and_opposite_ends():
    x = points(3, 5)
    at, velocity = geodesic_velocity(x, x, torch.full((3,), 0.4, dtype=torch.float64))
    torch.testing.assert_close(at, x)
    assert velocity.abs().max() < 1e-7
    at, velocity = geodesic_velocity(x, -x, torch.ones(3, dtype=torch.float64))
    torch.testing.assert_close(at, -x, atol=1e-9, rtol=0)
    torch.testing.assert_close(velocity.norm(dim=1), torch.full((3,), torch.pi, dtype=torch.float64))


def test_samples_stay_on_the_sphere_and_follow_a_known_flow():
    """A rotation is the flow of v(x) = Ax with A skew; its end is exp(A)·x."""
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(4, 4, generator=generator, dtype=torch.float64)
    skew = matrix - matrix.T
    x = points(10, 4, 3)
    exact = x @ torch.linalg.matrix_exp(skew).T
    errors = []
    for steps in (20, 40, 80):
        found = integrate_flow(lambda x, t: x @ skew.T, x, steps=steps)
        torch.testing.assert_close(found.norm(dim=1), torch.ones(10, dtype=torch.float64))
        errors.append((found - exact).abs().max().item())
    assert errors[2] < 0.01
    assert 3.4 < errors[0] / errors[1] < 4.6  # second-order convergence
    assert 3.4 < errors[1] / errors[2] < 4.6


def test_a_field_that_depends_on_time():
    """At speed 2t along the great circle through two axes, the final angle is 1."""

    def field(x, t):
        return 2 * t[:, None] * torch.stack([-x[:, 1], x[:, 0], 0 * x[:, 2]], 1)

    x = torch.eye(3, dtype=torch.float64)[:1]
    one = torch.tensor(1.0, dtype=torch.float64)
    expected = torch.stack([one.cos(), one.sin(), 0 * one])[None]
    torch.testing.assert_close(integrate_flow(field, x, steps=3), expected, atol=1e-12, rtol=0)


def test_the_field_is_tangent_and_every_parameter_learns():
    field = SphereVelocity(5, hidden=16, depth=2)
    x, t = points(7, 5).float(), torch.rand(7)
    v = field(x, t)
    assert (v * x).sum(1).abs().max() < 1e-6
    v.square().sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in field.parameters())
    assert not torch.allclose(v, field(x, 1 - t))


def test_refuses():
    with pytest.raises(ValueError, match="in_features must be an integer ≥ 2"):
        SphereVelocity(1)
    with pytest.raises(ValueError, match="steps must be an integer ≥ 1, got 0"):
        integrate_flow(SphereVelocity(2), torch.eye(2), steps=0)
