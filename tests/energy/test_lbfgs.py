import pytest
import torch

from hypersphere.energy.lbfgs import lbfgs


def rosenbrock(x):
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        f = (1 - x[:, :-1]).square().sum(1) + 100 * (x[:, 1:] - x[:, :-1].square()).square().sum(1)
        return f.detach(), torch.autograd.grad(f.sum(), x)[0]


def test_finds_the_valley_from_every_start():
    start = torch.rand(6, 4, dtype=torch.float64)
    x, f = lbfgs(rosenbrock, start, tolerance=0, steps=500)
    assert torch.allclose(x, torch.ones_like(x), atol=1e-5)
    assert f.max() < 1e-12


def test_rows_do_not_disturb_each_other():
    start = torch.rand(3, 4, dtype=torch.float64)
    together, _ = lbfgs(rosenbrock, start, steps=20)
    assert torch.allclose(together[1], lbfgs(rosenbrock, start[1:2], steps=20)[0][0], rtol=1e-6)


def test_agrees_with_torch():
    start = torch.tensor([[-1.2, 1.0]], dtype=torch.float64)
    parameter = start.clone().requires_grad_()
    optimizer = torch.optim.LBFGS(
        [parameter], max_iter=200, line_search_fn="strong_wolfe", tolerance_grad=1e-10, tolerance_change=0
    )

    def closure():
        f, g = rosenbrock(parameter)
        parameter.grad = g
        return f.sum()

    optimizer.step(closure)
    assert torch.allclose(lbfgs(rosenbrock, start, tolerance=0)[0], parameter.detach(), atol=1e-6)


def test_never_climbs_and_leaves_a_minimum_alone():
    x, f = lbfgs(rosenbrock, torch.ones(1, 4, dtype=torch.float64))
    assert torch.equal(x, torch.ones_like(x))
    values = [lbfgs(rosenbrock, torch.zeros(1, 4, dtype=torch.float64), steps=k)[1].item() for k in range(1, 12)]
    assert values == sorted(values, reverse=True)
    assert f.item() == pytest.approx(0)


def test_a_concave_start_is_no_obstacle():
    def cosine(x):
        return x.cos().sum(1), -x.sin()

    x, f = lbfgs(cosine, torch.full((1, 3), 0.1, dtype=torch.float64))
    assert f.item() == pytest.approx(-3)
    assert torch.allclose(x.cos(), torch.full_like(x, -1))
