import pytest
import torch
from torch import nn

from hypersphere.energy import LowRankBilateral, LowRankEnergy
from hypersphere.orthogonal import factorize
from hypersphere.recognition import Embedder
from hypersphere.training import Experiment, call, replace
from tests.training.runs import small


def network():
    return nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 12), nn.Linear(12, 5))


def test_hidden_layers_have_weights_of_low_rank():
    net = factorize(network(), rank=4)
    for layer in (net[0], net[3]):
        assert torch.linalg.matrix_rank(layer.weight.flatten(1)) == 4
        assert isinstance(layer.parametrizations.weight[0], LowRankBilateral)
    assert isinstance(net[4].weight, nn.Parameter)
    assert net(torch.randn(2, 3, 4, 4)).shape == (2, 5)


def test_minimizing_the_energy_of_the_factors():
    net = factorize(network(), rank=4)
    before = LowRankEnergy(net)().item()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    for _ in range(20):
        optimizer.zero_grad()
        LowRankEnergy(net)().backward()
        optimizer.step()
    assert LowRankEnergy(net)().item() < before


def test_small_layers_stay_and_the_generator_decides():
    net = factorize(network(), rank=14)  # layer 3 has too few neurons (12)
    assert isinstance(net[3].weight, nn.Parameter)
    assert hasattr(net[0], "parametrizations")
    draws = []
    for seed in (1, 1, 2):
        one = factorize(network(), rank=2, only="3", generator=torch.Generator().manual_seed(seed))
        assert isinstance(one[0].weight, nn.Parameter)
        draws.append(one[3].parametrizations.weight[0].projection)
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


def test_a_run_with_low_rank_layers_leaves_an_embedder(tmp_path):
    pytest.importorskip("accelerate", reason="needs the extra train: pip install 'torch-hypersphere[train]'")
    config = small(steps=2, pictures=False, orthogonal=call(factorize, rank=2), energy=call(LowRankEnergy, hidden=1e-3))
    Experiment(replace(config, **{"optimizer.lr": 1e-3}), tmp_path).run()
    features = Embedder.load(tmp_path / "embedder.safetensors")(torch.zeros(2, 1, 8, 8, dtype=torch.uint8))
    assert features.isfinite().all()


def test_refuses():
    with pytest.raises(ValueError, match="rank must be an integer ≥ 1"):
        factorize(network(), 0)
    with pytest.raises(ValueError, match="has no Linear or Conv layer of rank 40"):
        factorize(network(), 40)
