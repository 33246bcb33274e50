import copy
import pickle

import pytest
import torch
from torch import nn

from hypersphere.energy import MHE, hyperspherical_energy
from tests.energy.contracts import RegularizerContract


class TestHalfSpaceMHE(RegularizerContract):
    def make(self, model):
        return MHE(model)

    def test_is_eq_5_4(self):
        net = self.net()
        hidden = hyperspherical_energy(net[0].weight, half_space=True) + hyperspherical_energy(
            net[4].weight, half_space=True
        )
        assert MHE(net)().item() == pytest.approx((hidden + hyperspherical_energy(net[5].weight)).item(), rel=1e-6)

    def test_defaults_follow_the_space(self):
        net = self.net()
        assert MHE(net)._layers["0"][1] == 1
        assert MHE(net, half_space=False)._layers["0"][1] == 10
        assert MHE(net, hidden=3.0, output=2.0)._layers["0"][1] == 3
        assert MHE(net, hidden=3.0, output=2.0)._layers["5"][1] == 2

    def test_output_only(self):
        net = self.net()
        mhe = MHE(net, hidden=0.0)
        assert list(mhe.per_layer()) == ["5"]
        assert torch.equal(mhe(), hyperspherical_energy(net[5].weight))

    def test_one_hidden_layer_is_always_in_half_space_and_the_output_never(self):
        w = torch.randn(5, 4)
        net = nn.Sequential(nn.Linear(4, 5), nn.Linear(4, 5))
        for layer in net:
            layer.weight.data.copy_(w)
        mhe = MHE(net)
        signs = torch.tensor([1.0, -1, 1, -1, 1])[:, None]
        before = mhe.per_layer()
        for layer in net:
            layer.weight.data.mul_(signs)
        after = mhe.per_layer()
        assert torch.allclose(before["0"], after["0"])
        assert not torch.allclose(before["1"], after["1"])

    def test_training_with_it_lowers_it(self):
        net = self.net()
        mhe = MHE(net)
        before = mhe()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(20):
            optimizer.zero_grad()
            mhe().backward()
            optimizer.step()
        assert mhe() < before

    def test_survives_copy_and_pickle(self):
        mhe = MHE(self.net())
        assert torch.equal(copy.deepcopy(mhe)(), mhe())
        assert torch.equal(pickle.loads(pickle.dumps(mhe))(), mhe())


class TestFullSpaceMHE(RegularizerContract):
    def make(self, model):
        return MHE(model, half_space=False, s=1)


class TestAngularMHE(RegularizerContract):
    def make(self, model):
        return MHE(model, distance="angular", s=0)


def test_a_model_without_a_classifier():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 1))
    assert list(MHE(net).per_layer()) == ["0", "1"]
