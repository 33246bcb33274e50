import pytest
import torch
from torch import nn

import hypersphere as hs
from hypersphere.energy import Gaussian, hyperspherical_energy, layer_energies


@pytest.mark.parametrize("options", [{}, {"s": 0, "half_space": True}, {"distance": "angular", "s": 1}])
def test_every_layer_in_the_space_asked_for(options):
    net, head = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Linear(5, 6)), hs.ArcFace(6, 7)
    energies = layer_energies(net, **options, classifier=head)
    weights = {"0": net[0].weight, "1": net[1].weight, "classifier": head.weight}
    assert energies == {name: hyperspherical_energy(w, **options).item() for name, w in weights.items()}


def test_a_kernel_and_nothing_to_measure():
    net = nn.Linear(5, 6)
    assert layer_energies(net, kernel=Gaussian(1))[""] == hyperspherical_energy(net.weight, kernel=Gaussian(1)).item()
    assert layer_energies(nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 1))) == {}
    with pytest.raises(ValueError, match="classifier must name"):
        layer_energies(net, classifier="fc")
    assert torch.is_grad_enabled()


def test_only_the_exception_for_missing_layers_is_caught(monkeypatch):
    def fail(*args, **options):
        raise ValueError("no layer of this kind may be used")

    monkeypatch.setattr("hypersphere.energy.mhe.MHE", fail)
    with pytest.raises(ValueError, match="no layer of this kind"):
        layer_energies(nn.Linear(5, 6))
