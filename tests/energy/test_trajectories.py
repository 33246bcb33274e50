import pytest
import torch

from hypersphere.energy import hyperspherical_energy, weighted_trajectories


def test_the_same_seed_gives_the_same_start_and_the_energy_falls():
    plain, heavy = (weighted_trajectories([beta, *[1.0] * 9]) for beta in (1.0, 10.0))
    assert torch.equal(plain[0], heavy[0])
    assert hyperspherical_energy(plain[-1]) < hyperspherical_energy(plain[0])
    assert torch.allclose(heavy.norm(dim=-1), torch.ones(201, 10, dtype=torch.float64))


def test_larger_weights_hold_a_neuron_still():
    """Figures D.1 and D.2: a larger β shortens the path of a neuron."""
    for count in (1, 2):
        lengths = [
            weighted_trajectories([*[beta] * count, *[1.0] * (10 - count)], steps=60)[:, 0]
            .diff(dim=0)
            .norm(dim=-1)
            .sum()
            .item()
            for beta in (1.0, 2.0, 4.0, 10.0)
        ]
        assert lengths[0] > lengths[1] > lengths[3]


@pytest.mark.parametrize("options", [{"importance": [1.0]}, {"steps": 0}, {"lr": float("nan")}, {"dim": 1}])
def test_refuses(options):
    with pytest.raises(ValueError, match="got"):
        weighted_trajectories(**{"importance": [1.0, 1.0], **options})
