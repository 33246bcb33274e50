import pytest
import torch
from torch import nn

from hypersphere.energy import LowRankBilateral, LowRankEnergy, hyperspherical_energy, low_rank_bilateral


def test_keeps_a_weight_of_that_rank():
    layer = nn.Linear(12, 10)
    layer.weight.data = torch.randn(10, 3) @ torch.randn(3, 12)
    weight = layer.weight.detach().clone()
    low_rank_bilateral(layer, rank=3)
    assert torch.allclose(layer.weight, weight, atol=1e-4)
    assert torch.linalg.matrix_rank(layer.weight.detach(), rtol=1e-4) == 3


def test_is_eq_e_23():
    layer = low_rank_bilateral(nn.Conv2d(2, 8, 3), rank=4)
    form = layer.parametrizations.weight
    y1, y2, p1 = form.original0, form.original1, form[0].projection
    assert torch.allclose(layer.weight.flatten(1).T, y2 @ torch.linalg.inv(p1 @ y2) @ y1, atol=1e-5)
    assert sum(p.numel() for p in form.parameters()) == 4 * (18 + 8)


def test_gradcheck():
    form = LowRankBilateral((5, 6), 3, dtype=torch.float64)
    y1, y2 = form.right_inverse(torch.randn(5, 6, dtype=torch.float64))
    assert torch.autograd.gradcheck(form, (y1.requires_grad_(), y2.requires_grad_()))


def test_trains_with_its_regulariser():
    torch.manual_seed(0)
    net = nn.Sequential(low_rank_bilateral(nn.Linear(12, 10), rank=3), nn.ReLU(), nn.Linear(10, 4))
    energy = LowRankEnergy(net, hidden=2.0)
    y1, y2 = net[0].parametrizations.weight.original0, net[0].parametrizations.weight.original1
    expected = hyperspherical_energy(y1.T, half_space=True) + hyperspherical_energy(y2.T, half_space=True)
    assert energy().item() == pytest.approx(2 * expected.item(), rel=1e-6)
    assert list(energy.per_layer()) == ["0.parametrizations.weight"]
    assert list(energy.parameters()) == []
    before = energy().item()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(10):
        optimizer.zero_grad()
        energy().backward()
        optimizer.step()
    assert energy().item() < before


def test_state_dict_keeps_the_projection():
    layer, other = low_rank_bilateral(nn.Linear(6, 5), 2, seed=1), low_rank_bilateral(nn.Linear(6, 5), 2, seed=2)
    other.load_state_dict(layer.state_dict())
    assert torch.equal(layer.weight, other.weight)


def test_refuses():
    with pytest.raises(ValueError, match="rank must be between 1 and 5"):
        low_rank_bilateral(nn.Linear(6, 5), 6)
    with pytest.raises(ValueError, match="two or more dimensions"):
        low_rank_bilateral(nn.BatchNorm1d(3), 2)
    with pytest.raises(ValueError, match="no layer in the low-rank form"):
        LowRankEnergy(nn.Linear(6, 5))
