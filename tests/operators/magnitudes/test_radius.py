import copy

import numpy as np
import pytest
import torch

from hypersphere import angular
from hypersphere.operators import Conv2d, Linear, magnitudes
from tests.operators.contracts import ANGLES, reference

LEARNABLE = {
    "ball": (magnitudes.Ball(), lambda x, r: np.minimum(x, r) / r),
    "tanh": (magnitudes.Tanh(), lambda x, r: np.tanh(x / r)),
    "seg": (magnitudes.Seg(), lambda x, r: np.where(x <= r, x, 0.5 * x + 0.5 * r)),
}


def patch_mean(layer, x):
    """Return the mean norm of the unfolded patches."""
    return torch.nn.functional.unfold(x, layer.kernel_size, padding=layer.padding).norm(dim=1).mean().item()


@pytest.fixture(params=LEARNABLE)
def member(request):
    return LEARNABLE[request.param]


@pytest.mark.parametrize("angle", ["cosine", "linear"])
def test_training_uses_the_mean_of_the_batch(member, angle):
    magnitude, h = member
    layer = Conv2d(3, 4, 3, padding=1, magnitude=magnitude, angular=ANGLES[angle][0], dtype=torch.float64)
    layer.magnitude.radius.log_rho.data = torch.linspace(-1, 1, 4, dtype=torch.float64)
    x = 3 * torch.randn(2, 3, 5, 5, dtype=torch.float64)
    radius = np.exp(np.linspace(-1, 1, 4)) * patch_mean(layer, x)
    expected = reference(layer, x, lambda w, n: h(n, radius), ANGLES[angle][1])
    assert np.abs(layer(x).detach().numpy() - expected).max() <= 1e-10


def test_evaluation_uses_the_running_mean_as_batchnorm_does(member):
    magnitude, h = member
    layer = Conv2d(3, 4, 3, magnitude=magnitude, dtype=torch.float64)
    statistics = torch.nn.BatchNorm1d(1, momentum=0.1).double()
    statistics.running_mean.fill_(1)
    for scale in (1.0, 5.0, 2.0):
        x = scale * torch.randn(2, 3, 5, 5, dtype=torch.float64)
        layer(x)
        statistics(torch.nn.functional.unfold(x, 3).norm(dim=1).reshape(-1, 1))
    running = layer.magnitude.radius.running_norm
    assert torch.allclose(running, statistics.running_mean.expand(4), atol=1e-12)
    assert layer.magnitude.radius.num_batches_tracked == 3
    layer.eval()
    expected = reference(layer, x, lambda w, n: h(n, running.numpy()), np.cos)
    assert np.abs(layer(x).detach().numpy() - expected).max() <= 1e-10
    assert torch.equal(layer.magnitude.radius.running_norm, running)


@pytest.mark.parametrize("g", [angular.Cosine(), angular.Linear()])
def test_the_gradient_goes_through_the_mean_of_the_batch(member, g):
    magnitude, _ = member
    layer = Conv2d(2, 3, 2, magnitude=magnitude, angular=g, dtype=torch.float64)
    names = [name for name, _ in layer.named_parameters()]
    call = lambda x, *p: torch.func.functional_call(layer, dict(zip(names, p, strict=True)), (x,))
    x = torch.randn(2, 2, 4, 4, dtype=torch.float64, requires_grad=True)
    assert layer.training
    assert torch.autograd.gradcheck(call, (x, *[p.detach().clone().requires_grad_() for p in layer.parameters()]))


def test_the_running_mean_is_a_constant_in_evaluation(member):
    magnitude, _ = member
    layer = Linear(5, 3, magnitude=magnitude, dtype=torch.float64)
    x = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    (trained,) = torch.autograd.grad(layer(x).square().sum(), x)
    layer.magnitude.radius.running_norm.copy_(x.detach().norm(dim=1).mean().expand(3))
    (fixed,) = torch.autograd.grad(layer.eval()(x).square().sum(), x)
    assert not torch.allclose(trained, fixed)
    call = lambda x: layer(x)
    assert torch.autograd.gradcheck(call, (x,))


def test_rho_starts_at_one_learns_and_stays_positive(member):
    magnitude, _ = member
    layer = Conv2d(3, 4, 3, magnitude=magnitude)
    radius = layer.magnitude.radius
    assert torch.equal(radius.log_rho.exp(), torch.ones(4))
    optimizer = torch.optim.SGD(radius.parameters(), lr=50.0)
    for _ in range(3):
        layer(torch.randn(2, 3, 6, 6)).square().sum().backward()
        optimizer.step()
    rho = radius.rho(torch.ones(1))
    assert (rho > 0).all()
    assert (rho != 1).all()


def test_each_layer_gets_its_own(member):
    magnitude, _ = member
    a, b = Linear(3, 4, magnitude=magnitude), Linear(3, 5, magnitude=magnitude)
    assert a.magnitude is not b.magnitude
    assert a.magnitude.radius.log_rho.shape == (4,)
    assert magnitude.radius.log_rho is None


def test_groups_have_their_own_means():
    layer = Conv2d(4, 6, 1, groups=2, magnitude=magnitudes.Tanh())
    x = torch.randn(2, 4, 3, 3)
    x[:, 2:] *= 10
    layer(x)
    norms = x.unflatten(1, (2, 2)).norm(dim=2).mean((0, 2, 3))
    assert torch.allclose(layer.magnitude.radius.running_norm, 0.9 + 0.1 * norms.repeat_interleave(3))


def test_state_and_copies(member):
    magnitude, _ = member
    layer, other = (Linear(5, 3, magnitude=magnitude) for _ in range(2))
    x = torch.randn(4, 5)
    layer(x)
    other.load_state_dict(layer.state_dict())
    assert {"magnitude.radius.log_rho", "magnitude.radius.running_norm"} <= set(layer.state_dict())
    assert torch.equal(other.eval()(x), layer.eval()(x))
    assert torch.equal(copy.deepcopy(layer)(x), layer(x))


def test_takes_the_layers_place_and_survives_empty_batches():
    layer = Linear(5, 3, magnitude=magnitudes.Ball(), dtype=torch.float64)
    assert layer.magnitude.radius.log_rho.dtype == torch.float64
    assert layer(torch.zeros(0, 5, dtype=torch.float64)).shape == (0, 3)
    assert torch.equal(layer.magnitude.radius.running_norm, torch.ones(3, dtype=torch.float64))


def test_all_zero_batches_stay_finite(member):
    magnitude, _ = member
    layer = Linear(5, 3, magnitude=magnitude, bias=False)
    x = torch.zeros(4, 5, requires_grad=True)
    layer(x).sum().backward()
    assert all(torch.isfinite(g).all() for g in (x.grad, layer.weight.grad, layer.magnitude.radius.log_rho.grad))


@pytest.mark.parametrize("g", [angular.Cosine(), angular.Linear()])
def test_gradcheck_of_rho_in_evaluation(member, g):
    magnitude, _ = member
    layer = Conv2d(2, 3, 2, magnitude=magnitude, angular=g, dtype=torch.float64).eval()
    x = torch.randn(1, 2, 4, 4, dtype=torch.float64)
    rho = torch.randn(3, dtype=torch.float64, requires_grad=True)
    call = lambda rho: torch.func.functional_call(layer, {"magnitude.radius.log_rho": rho}, (x,))
    assert torch.autograd.gradcheck(call, (rho,))


def test_an_unbound_radius_says_what_to_do():
    with pytest.raises(ValueError, match="learnable_radius=False"):
        magnitudes.Tanh().radial(torch.ones(1))


@pytest.mark.untyped
def test_compiles_as_one_graph():
    torch._dynamo.reset()
    layer = Linear(5, 3, magnitude=magnitudes.Tanh())
    other, x = copy.deepcopy(layer), torch.randn(4, 5)
    assert torch.allclose(torch.compile(layer, fullgraph=True, backend="aot_eager")(x), other(x), atol=1e-6)
    assert torch.allclose(layer.magnitude.radius.running_norm, other.magnitude.radius.running_norm)
