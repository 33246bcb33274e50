import math

import pytest
import torch

from hypersphere.energy import hyperspherical_energy, separation
from hypersphere.energy.checkpoints import energy_report


def test_each_layer_with_its_neighbours_and_its_dead():
    w = torch.randn(20, 3, 2, 2)
    w[4] = 2 * w[9]
    w[5] = 0
    state = {
        "conv.weight": w,
        "bn.weight": torch.ones(20),
        "bn.num_batches_tracked": torch.tensor(3),
        "one.weight": torch.ones(1, 5),
    }
    (layer,) = energy_report(state, pairs=2)
    alive = torch.cat([w[:5], w[6:]])
    assert (layer.name, layer.neurons, layer.dim) == ("conv.weight", 20, 12)
    assert layer.energy == pytest.approx(hyperspherical_energy(alive).item(), rel=1e-6)
    assert layer.dead == [5]
    assert layer.duplicates == [(4, 9)]
    assert layer.nearest[0][:2] == (4, 9)
    assert len(layer.nearest) == 2
    assert layer.separation == layer.nearest[0][2] == separation(alive).item()
    assert layer.deviations > 100
    assert set(layer.as_dict()) >= {"energy", "random_mean", "random_std", "nearest"}


def test_a_random_layer_is_like_random_layers():
    (layer,) = energy_report({"w": torch.randn(64, 16)}, s=1, half_space=True, samples=20)
    assert abs(layer.deviations) < 4
    assert layer.random_mean == pytest.approx(layer.energy, rel=0.02)


def test_half_precision_and_a_dead_layer():
    a, b = energy_report({"a": torch.randn(8, 4).half(), "b": torch.zeros(8, 4)})
    assert math.isfinite(a.energy)
    assert math.isnan(b.energy)
    assert b.dead == list(range(8))


def test_refuses():
    with pytest.raises(ValueError, match="samples must be"):
        energy_report({}, samples=1)
