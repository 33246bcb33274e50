import pytest
import torch
from torch import nn

from hypersphere.energy import MHE, ChannelGroups, CoMHE, RandomProjection, hyperspherical_energy


def net():
    return nn.Sequential(nn.Conv2d(4, 6, 3), nn.Conv2d(4, 8, 3), nn.Linear(36, 5), nn.Linear(5, 3))


def test_is_eq_6_4():
    model = net()
    comhe = CoMHE(model, RandomProjection(dim=7, count=3))
    expected = torch.stack(
        [hyperspherical_energy(model[0].weight.flatten(1) @ p.T, half_space=True) for p in comhe.projection.basis_36]
    ).mean()
    assert comhe.per_layer()["0"].item() == pytest.approx(expected.item(), rel=1e-5)
    assert comhe.per_layer()["3"].item() == pytest.approx(hyperspherical_energy(model[3].weight).item(), rel=1e-6)


def test_the_maximum_is_eq_6_5():
    model = net()
    comhe = CoMHE(model, RandomProjection(dim=7, count=3, reduce="max"))
    energies = [
        hyperspherical_energy(model[0].weight.flatten(1) @ p.T, half_space=True) for p in comhe.projection.basis_36
    ]
    assert comhe.per_layer()["0"].item() == pytest.approx(max(energies).item(), rel=1e-5)


def test_layers_of_equal_dimension_share_their_basis():
    assert [k for k in CoMHE(net()).state_dict() if "basis" in k] == ["projection.basis_36"]
    own = CoMHE(net(), shared=False)
    assert [k for k in own.state_dict() if "basis" in k] == [
        "projection.basis_0",
        "projection.basis_1",
        "projection.basis_2",
    ]
    assert not torch.equal(own.projection.basis_0, own.projection.basis_1)


def test_every_option_of_the_energy_is_passed_on():
    model = net()
    comhe = CoMHE(model, RandomProjection(dim=7, count=1), s=1, half_space=False, distance="angular")
    p = comhe.projection.basis_36[0]
    expected = hyperspherical_energy(model[0].weight.flatten(1) @ p.T, 1, False, "angular")
    assert comhe.per_layer()["0"].item() == pytest.approx(expected.item(), rel=1e-5)


def test_one_group_of_all_channels_is_mhe():
    model = net()
    assert CoMHE(model, ChannelGroups(size=64))().item() == pytest.approx(MHE(model)().item(), rel=1e-6)


def test_a_network_of_a_classifier_alone():
    model = nn.Linear(4, 3)
    comhe = CoMHE(model)
    comhe.step()
    assert torch.equal(comhe(), hyperspherical_energy(model.weight))
