import copy
import functools

import pytest
import torch
from torch import nn

from hypersphere.orthogonal import Hyperball, Muon, MuonSphere, group_matrices

CASES = {
    "Adam": (Hyperball, functools.partial(torch.optim.Adam, lr=0.05)),
    "SGD with momentum": (Hyperball, functools.partial(torch.optim.SGD, lr=0.05, momentum=0.9)),
    "Muon": (Hyperball, functools.partial(Muon, lr=0.05, weight_decay=0)),
    "MuonSphere": (MuonSphere, functools.partial(Muon, lr=0.05, weight_decay=0)),
    "spectral Adam": (MuonSphere, functools.partial(torch.optim.Adam, lr=0.05)),
}
every_case = pytest.mark.parametrize("case", CASES)
X = torch.randn(6, 4, 4, 4, generator=torch.Generator().manual_seed(0))


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(4, 8, 3, groups=2), nn.ReLU(), nn.Flatten(), nn.Linear(32, 8), nn.Linear(8, 3))


def make(model, case):
    kind, base = CASES[case]
    matrices, others = group_matrices(model, classifier=False, weight_decay=0)
    return [kind(matrices, base), torch.optim.Adam(others, lr=0.01)]


def norms(model, kind):
    order = 2 if kind is MuonSphere else "fro"
    found = []
    for layer in (model[0], model[3], model[4]):
        parts = layer.weight.detach().flatten(1).chunk(getattr(layer, "groups", 1))
        found += [torch.linalg.matrix_norm(part.double(), order) for part in parts]
    return torch.stack(found)


def train(model, optimizers, steps):
    for _ in range(steps):
        loss = (model(X) - 1).square().mean()
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
    return loss.item()


@every_case
def test_the_norms_stay_and_the_loss_falls(case):
    model = network()
    before = norms(model, CASES[case][0])
    optimizers = make(model, case)
    first = train(model, optimizers, 1)
    assert train(model, optimizers, 20) < 0.9 * first
    assert torch.allclose(norms(model, CASES[case][0]), before, rtol=1e-5)


def test_one_step_is_the_formula():
    """R·N(W − ηR·N(u)) with u the first step of Adam, the signs of the gradient, in float64."""
    w, g = torch.randn(5, 3, dtype=torch.float64), torch.randn(5, 3, dtype=torch.float64)
    p = nn.Parameter(w.clone())
    p.grad = g.clone()
    Hyperball([p], functools.partial(torch.optim.Adam, lr=0.3, eps=0)).step()
    r = w.norm()
    moved = w - 0.3 * r * g.sign() / g.sign().norm()
    assert torch.allclose(p, r * moved / moved.norm(), atol=1e-12)


@pytest.mark.parametrize("lr", [1e-3, 1e-1])
def test_the_rate_is_an_angle_whatever_the_size_of_weight_and_gradient(lr):
    """A step perpendicular to the weight rotates it by arctan η."""
    for size in (1e-3, 1.0, 1e3):
        w = torch.tensor([[size, 0.0], [0.0, 0.0]], dtype=torch.float64)
        p = nn.Parameter(w.clone())
        p.grad = torch.tensor([[0.0, 0.0], [0.0, 1e-4 * size]], dtype=torch.float64)
        Hyperball([p], functools.partial(torch.optim.SGD, lr=lr)).step()
        angle = torch.acos((p * w).sum() / size**2)
        assert torch.allclose(angle, torch.tensor(lr, dtype=torch.float64).atan(), rtol=1e-6)


def test_a_step_of_muonsphere_has_the_spectral_length_of_the_rate():
    w = torch.linalg.qr(torch.randn(6, 4, dtype=torch.float64)).Q
    p = nn.Parameter(w.clone())
    p.grad = torch.randn_like(w)
    MuonSphere([p], functools.partial(Muon, lr=1e-4, weight_decay=0)).step()
    assert torch.linalg.matrix_norm(p - w, 2) <= 2.1e-4
    assert torch.allclose(torch.linalg.matrix_norm(p, 2), torch.ones((), dtype=torch.float64))


@every_case
def test_a_resumed_run_is_the_same_run_bit_for_bit(case):
    whole = network()
    train(whole, make(whole, case), 6)
    first = network()
    optimizers = make(first, case)
    train(first, optimizers, 3)
    second = network()
    second.load_state_dict(first.state_dict())
    resumed = make(second, case)
    for new, old in zip(resumed, optimizers, strict=True):
        new.load_state_dict(copy.deepcopy(old.state_dict()))
    train(second, resumed, 3)
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), second.parameters(), strict=True))


def test_schedules_and_further_groups_reach_the_inner_optimizer():
    layer, more = nn.Linear(4, 4), nn.Linear(4, 4)
    optimizer = Hyperball(layer.parameters(), functools.partial(torch.optim.SGD, lr=0.1))
    optimizer.add_param_group({"params": [more.weight], "lr": 0.2})
    torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5)
    assert [group["lr"] for group in optimizer.base.param_groups] == [0.05, 0.1]
    bias = layer.bias.detach().clone()
    (layer(torch.ones(1, 4)).sum() + more(torch.ones(1, 4)).sum()).backward()
    optimizer.step()
    assert torch.allclose(layer.bias, bias - 0.05)  # a bias is not projected to a sphere


def test_a_given_radius_holds_from_the_start():
    layer = nn.Linear(4, 3)
    Hyperball(layer.parameters(), functools.partial(torch.optim.SGD, lr=0.1), radius=2.0)
    assert torch.allclose(layer.weight.norm(), torch.tensor(2.0))


def test_a_closure_is_called_once():
    p, calls = nn.Parameter(torch.ones(2, 2)), []

    def closure():
        calls.append(1)
        loss = p.square().sum()
        loss.backward()
        return loss

    assert Hyperball([p]).step(closure) == 4
    assert calls == [1]


def test_no_gradient_or_a_zero_one_moves_nothing():
    still, zero = nn.Parameter(torch.randn(3, 3)), nn.Parameter(torch.randn(3, 3))
    before = still.detach().clone(), zero.detach().clone()
    zero.grad = torch.zeros(3, 3)
    Hyperball([still, zero]).step()
    assert torch.equal(still, before[0])
    assert torch.allclose(zero, before[1])


@pytest.mark.untyped
def test_refuses():
    with pytest.raises(ValueError, match="is zero, so it is on no sphere"):
        Hyperball([nn.Parameter(torch.zeros(2, 2))])
    with pytest.raises(ValueError, match="weight_decay must be 0"):
        Hyperball([nn.Parameter(torch.ones(2, 2))], torch.optim.AdamW)
    with pytest.raises(ValueError, match="radius must be a finite number > 0"):
        Hyperball([nn.Parameter(torch.ones(2, 2))], radius=-1.0)
    with pytest.raises(ValueError, match="base must make an optimizer"):
        Hyperball([nn.Parameter(torch.ones(2, 2))], lambda params: 3)


def test_it_is_a_setting():
    from hypersphere.config import as_call, assign
    from hypersphere.training import Config, from_json, to_json

    texts = ["optimizer=Hyperball", "optimizer.base=SGD", "optimizer.base.lr=0.03"]
    config = from_json(to_json(assign(as_call(Config()), texts).build()))
    optimizer = config.optimizer.build(params=[{"params": [nn.Parameter(torch.ones(2, 2))], "factor": 1.0}])
    assert isinstance(optimizer, Hyperball)
    assert isinstance(optimizer.base, torch.optim.SGD)
    assert optimizer.param_groups[0]["lr"] == 0.03
