import copy

import pytest
import torch
from torch import nn

from hypersphere.orthogonal import (
    OGD,
    exponential,
    gram_schmidt,
    group_parameters,
    orthogonality_error,
    overparameterize,
)
from tests.orthogonal.contracts import OrthogonalContract, build
from tests.orthogonal.maps.contracts import deviation


def start(n=6, dtype=torch.float64):
    u = nn.Parameter(gram_schmidt(torch.randn(n, n, dtype=dtype)))
    u.grad = torch.randn(n, n, dtype=dtype)
    return u


def literal(u, gradient, lr):
    """Compute eq. 7.5 with −∇f in place of ∇f and an explicit inverse."""
    g, eye = -gradient, torch.eye(len(u), dtype=u.dtype)
    hat = g @ u.T - 0.5 * u @ (u.T @ g @ u.T)
    w = hat - hat.T
    return torch.linalg.inv(eye - lr / 2 * w) @ (eye + lr / 2 * w) @ u


class TestStep:
    def test_the_exact_step_is_the_cayley_transform(self):
        u = start()
        expected = literal(u.detach(), u.grad, 0.3)
        OGD([u], lr=0.3, exact=True).step()
        assert torch.allclose(u, expected, atol=1e-12)
        assert deviation(u) <= 1e-12

    def test_the_fixed_point_tends_to_it_at_the_stated_rate(self):
        u = start()
        expected = {lr: literal(u.detach(), u.grad, lr) for lr in (1e-2, 2e-2)}
        for iterations in (1, 2, 3):
            errors = []
            for lr, target in expected.items():
                v = nn.Parameter(u.detach().clone())
                v.grad = u.grad
                OGD([v], lr=lr, iterations=iterations).step()
                errors.append((v - target).abs().max().item())
            assert errors[1] / errors[0] == pytest.approx(2 ** (iterations + 2), rel=0.15)

    def test_two_iterations_drift_by_the_fourth_power(self):
        u = start(2)
        w = (u.grad @ u.detach().T - u.detach() @ u.grad.T) / 2
        angle = 0.1 * w[0, 1].abs().item()
        OGD([u], lr=0.1).step()
        assert deviation(u) == pytest.approx(angle**4 / 4, rel=0.05)

    def test_descends_as_fast_as_the_gradient_says(self):
        u, target = start(), gram_schmidt(torch.randn(6, 6, dtype=torch.float64))
        loss = lambda: (u * target).sum()
        (u.grad,) = torch.autograd.grad(loss(), u)
        w = (u.grad @ u.detach().T - u.detach() @ u.grad.T) / 2
        before = loss().item()
        OGD([u], lr=1e-5).step()
        assert (loss().item() - before) / 1e-5 == pytest.approx(-w.square().sum().item(), rel=1e-3)

    def test_finds_a_rotation(self):
        u, target = nn.Parameter(torch.eye(5)), exponential(torch.randn(5, 5))
        optimizer = OGD([u], lr=0.05, momentum=0.9, exact=True)
        for _ in range(300):
            optimizer.zero_grad()
            (u - target).square().sum().backward()
            optimizer.step()
        assert torch.allclose(u, target, atol=1e-3)

    def test_batches_are_their_matrices(self):
        u = nn.Parameter(gram_schmidt(torch.randn(3, 4, 4, dtype=torch.float64)))
        u.grad = torch.randn(3, 4, 4, dtype=torch.float64)
        alone = [nn.Parameter(x.clone()) for x in u.detach()]
        for x, g in zip(alone, u.grad, strict=True):
            x.grad = g
        OGD([u], lr=0.1).step()
        OGD(alone, lr=0.1).step()
        assert torch.allclose(u, torch.stack(list(alone)))


class TestMomentum:
    def test_two_steps_by_hand(self):
        u = start()
        first, second = u.grad.clone(), torch.randn(6, 6, dtype=torch.float64)
        before = u.detach().clone()
        optimizer = OGD([u], lr=0.1, momentum=0.9, exact=True)
        optimizer.step()
        after = u.detach().clone()
        assert torch.allclose(after, literal(before, first, 0.1))
        w = (first @ before.T - before @ first.T) / 2
        u.grad = second
        optimizer.step()
        assert torch.allclose(u, literal(after, second + 0.9 * w @ before, 0.1))

    def test_is_saved_and_restored(self):
        u = start()
        optimizer = OGD([u], lr=0.1, momentum=0.9, reproject_every=2)
        optimizer.step()
        v = nn.Parameter(u.detach().clone())
        other = OGD([v], lr=0.5)
        other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        u.grad = v.grad = torch.randn(6, 6, dtype=torch.float64)
        optimizer.step()
        other.step()
        assert torch.equal(u, v)


def test_reprojection_comes_back_to_the_nearest_orthogonal_matrix():
    drifting, kept = (nn.Parameter(torch.eye(6)) for _ in range(2))
    optimizers = OGD([drifting], lr=0.05), OGD([kept], lr=0.05, reproject_every=5)
    generator = torch.Generator().manual_seed(0)
    for _ in range(50):
        drifting.grad = kept.grad = torch.randn(6, 6, generator=generator)
        for optimizer in optimizers:
            optimizer.step()
    assert deviation(drifting) > 1e-4
    assert deviation(kept) <= 1e-5


@pytest.mark.parametrize("lr", [0.1, 0.2, 1.0, 10.0])
def test_a_steep_quadratic_converges(lr):
    """The fixed point of 7.6 exists only for λ‖W‖ < 2, so the step size is limited to 1/‖W‖."""
    target = gram_schmidt(torch.randn(8, 8, dtype=torch.float64))
    u = nn.Parameter(torch.eye(8, dtype=torch.float64))
    optimizer = OGD([u], lr=lr, momentum=0.0, reproject_every=1)
    for _ in range(50):
        optimizer.zero_grad()
        (50 * (u - target).square().sum()).backward()
        optimizer.step()
    assert torch.isfinite(u).all()
    assert deviation(u) < 1e-3


def test_the_bound_is_the_references():
    u = start(4)
    u.grad *= 100
    hat = u.grad @ u.detach().T
    w = (hat - hat.T) / 2
    expected, v = u.detach().clone(), nn.Parameter(u.detach().clone())
    v.grad = u.grad
    OGD([u], lr=5.0, momentum=0.0).step()
    OGD([v], lr=1 / w.abs().sum(0).max().item(), momentum=0.0).step()
    assert torch.allclose(u, v)
    assert not torch.allclose(u, expected)


def test_composes_with_a_closure_and_a_schedule():
    u = start()
    optimizer = OGD([{"params": [u], "lr": 0.2}])
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    assert optimizer.step(lambda: 3.0) == 3.0
    schedule.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1)
    u.grad = None
    before = u.detach().clone()
    optimizer.step()
    assert torch.equal(u, before)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": -1.0}, "lr must be ≥ 0, got -1.0"),
        ({"momentum": 1.0}, r"momentum must be in \[0, 1\), got 1.0"),
        ({"iterations": 0}, "iterations must be ≥ 1"),
        ({"reproject_every": -1}, "reproject_every ≥ 0"),
    ],
)
def test_refuses_options(options, message):
    with pytest.raises(ValueError, match=message):
        OGD([start()], **options)


def test_refuses_what_is_not_square():
    with pytest.raises(ValueError, match=r"params must be square matrices \(…, n, n\), got shape \(2, 3\)"):
        OGD([nn.Parameter(torch.zeros(2, 3))])


class TestParamGroups:
    def test_splits_every_trainable_parameter(self):
        model = overparameterize(nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 5), nn.Linear(5, 2)), "ogd", blocks=1)
        model[2].bias.requires_grad_(False)
        rotations, others = group_parameters(model)
        assert [p.shape for p in rotations] == [(4, 4), (3, 3)]
        assert {id(p) for p in [*rotations, *others]} == {id(p) for p in model.parameters() if p.requires_grad}
        assert group_parameters(model).rotations == rotations

    def test_other_methods_have_no_rotation_to_preserve(self):
        assert group_parameters(overparameterize(nn.Linear(4, 3))).rotations == []


class TestFixedPoint(OrthogonalContract):
    method = "ogd"
    error = 2e-3
    reproject_every = 0

    def optimizers(self, model):
        rotations, others = group_parameters(model)
        ogd = OGD(rotations, lr=1e-2, momentum=0.9, reproject_every=self.reproject_every)
        return [ogd, torch.optim.Adam(others, lr=1e-2, weight_decay=1e-2)] if others else [ogd]


class TestReprojected(TestFixedPoint):
    error = 1e-5
    reproject_every = 10


def test_half_precision_modules_keep_r_in_float32():
    layer, x = build("linear wide")
    layer, x = layer.bfloat16(), x.bfloat16()
    rotations, _ = group_parameters(overparameterize(layer, "ogd"))
    optimizer = OGD(rotations, lr=0.1, reproject_every=1)
    for _ in range(3):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            layer(x).float().square().mean().backward()
            optimizer.step()
    assert orthogonality_error(layer) <= 1e-5


def test_at_four_times_the_rate_it_steps_like_cayley():
    x, y = torch.randn(64, 8, dtype=torch.float64), torch.randn(64, 6, dtype=torch.float64)
    weight = torch.randn(6, 8, dtype=torch.float64)
    losses = {}
    for method in ("ogd", "cayley"):
        net = nn.Linear(8, 6, bias=False).double()
        net.weight.data = weight.clone()
        overparameterize(net, method, start="identity", classifier=False)
        free = [p for p in net.parameters() if p.requires_grad]
        optimizer = OGD(free, lr=0.04) if method == "ogd" else torch.optim.SGD(free, lr=0.01, momentum=0.9)
        found = losses[method] = []
        for _ in range(8):
            optimizer.zero_grad()
            loss = (net(x) - y).square().mean()
            loss.backward()
            optimizer.step()
            found.append(loss.item())
    drop = losses["cayley"][0] - losses["cayley"][-1]
    assert drop > 0
    assert abs(losses["ogd"][-1] - losses["cayley"][-1]) < 0.02 * drop
