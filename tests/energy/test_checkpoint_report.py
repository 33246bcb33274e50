import math

import pytest
import torch
from safetensors.torch import save_file

from hypersphere.energy import hyperspherical_energy, separation
from hypersphere.energy.checkpoint_files import Checkpoint
from hypersphere.energy.checkpoint_report import effective_rank, energy_changes, energy_report


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
    assert layer.separation == layer.nearest[0][2] == pytest.approx(separation(alive).item(), abs=1e-7)
    assert layer.near_duplicates == pytest.approx(2 / 19)
    assert layer.deviations > 100
    assert set(layer.as_dict()) >= {"energy", "random_mean", "random_std", "nearest"}


def test_a_random_layer_is_like_random_layers():
    (layer,) = energy_report({"w": torch.randn(64, 16)}, s=1, half_space=True)
    assert abs(layer.deviations) < 4
    assert layer.random_mean == pytest.approx(layer.energy, rel=0.02)


def test_half_precision_a_dead_layer_and_nan():
    spoilt = torch.randn(8, 4)
    spoilt[3, 1] = math.nan
    a, b, c = energy_report({"a": torch.randn(8, 4).half(), "b": torch.zeros(8, 4), "c": spoilt})
    assert math.isfinite(a.energy)
    assert math.isnan(b.energy)
    assert b.dead == list(range(8))
    assert c.dead == [3]
    assert math.isfinite(c.energy)


def test_the_effective_rank():
    values = torch.tensor([3.0, 1.0, 0.0])
    p = values.square() / values.square().sum()
    assert effective_rank(torch.diag(values)) == pytest.approx(torch.special.entr(p).sum().exp().item() / 3)
    assert effective_rank(torch.randn(5, 1) @ torch.randn(1, 9)) == pytest.approx(1 / 5)


def test_a_rotation_is_told_from_other_changes(tmp_path):
    w = torch.randn(30, 8, dtype=torch.float64)
    r = torch.linalg.qr(torch.randn(8, 8, dtype=torch.float64))[0]
    stretched = w * torch.linspace(1, 3, 30, dtype=torch.float64)[:, None]
    before = {"turned": w, "stretched": w, "same": w, "other shape": w}
    after = {"turned": w @ r, "stretched": stretched, "same": w, "other shape": w[:9], "new": w}
    changes = {change.name: change for change in energy_changes(before, after)}
    assert set(changes) == {"turned", "stretched", "same"}
    assert changes["turned"].rotated == pytest.approx(1, abs=1e-12)
    assert changes["turned"].energy == pytest.approx(0, abs=1e-9)
    assert changes["turned"].length == pytest.approx(1)
    assert changes["stretched"].angle == pytest.approx(0, abs=1e-7)
    assert changes["stretched"].length == pytest.approx(2)
    assert changes["stretched"].rotated < 0.1
    assert changes["same"].rotated == 0
    assert changes["same"].effective_rank == changes["same"].near_duplicates == 0
    expected = effective_rank(stretched) - effective_rank(w)
    assert changes["stretched"].effective_rank == pytest.approx(expected)
    save_file({"turned": w}, tmp_path / "before.safetensors")
    (read,) = energy_changes(Checkpoint(tmp_path / "before.safetensors"), after)
    assert read == changes["turned"]


def test_neurons_that_fall_together_are_counted():
    w = torch.eye(6)
    collapsed = w.clone()
    collapsed[1] = w[0] + 0.01 * w[1]
    shares: list[float] = []
    (change,) = energy_changes({"w": w}, {"w": collapsed}, progress=lambda name, done: shares.append(done))
    assert change.near_duplicates == pytest.approx(2 / 6)
    assert change.effective_rank < -0.05
    assert shares == sorted(shares)
    assert shares[-1] == 1


def test_refuses_and_says_what_is_left_out():
    left_out: dict[str, str] = {}
    energy_report({"w": torch.randn(4, 4), "q": torch.ones(3, 3, dtype=torch.int8)}, left_out=left_out)
    assert left_out == {"q": "torch.int8 is not a floating-point type"}
    with pytest.raises(ValueError, match="pairs must be"):
        energy_report({}, pairs=0)
