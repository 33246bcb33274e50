import pytest
import torch
from torch import nn

from hypersphere.energy import (
    Penalty,
    Regularizer,
    covering_radius,
    gram_log_determinant,
    maximum_separation,
    polarization,
    srip,
    uniformity,
)
from hypersphere.geometry import orthogonality, orthonormality
from hypersphere.neurons import neuron_weights
from tests.energy.contracts import RegularizerContract


class PenaltyContract(RegularizerContract):
    measure = staticmethod(orthonormality)

    def make(self, model):
        return Penalty(model, type(self).measure, hidden=0.5, output=0.25)

    def test_is_the_weighted_sum_of_the_measure(self):
        net = self.net()
        penalty = self.make(net)
        measure = type(self).measure
        values = penalty.per_layer()
        assert torch.allclose(values["4"], measure(net[4].weight))
        assert penalty().item() == pytest.approx(
            (0.5 * (values["0"] + values["4"]) + 0.25 * values["5"]).item(), rel=1e-5
        )


class TestOrthonormal(PenaltyContract):
    measure = staticmethod(orthonormality)


class TestOrthogonal(PenaltyContract):
    measure = staticmethod(orthogonality)


class TestSRIP(PenaltyContract):
    measure = staticmethod(lambda w: srip(w, iterations=100))


class TestMaximumSeparation(PenaltyContract):
    measure = staticmethod(maximum_separation)


class TestPolarization(PenaltyContract):
    measure = staticmethod(polarization)


class TestGramLogDeterminant(PenaltyContract):
    measure = staticmethod(gram_log_determinant)


class TestUniformity(PenaltyContract):
    measure = staticmethod(uniformity)


class TestLayers:
    def net(self):
        return nn.Sequential(
            nn.Conv2d(3, 8, 3),
            nn.Conv2d(8, 8, 3, groups=2),
            nn.Conv1d(1, 8, 1),
            nn.Linear(8, 1),
            nn.Linear(4, 3),
            nn.Linear(6, 5),
        )

    def test_reasons_to_skip(self):
        penalty = Penalty(self.net(), orthonormality, skip=["0"])
        assert list(penalty.per_layer()) == ["1", "4"]
        assert penalty.skipped == {
            "0": "left out by skip",
            "2": "neurons of one dimension have no angle",
            "3": "fewer than two neurons to compare",
            "5": "the output layer, because output is 0; pass classifier=False if it is a hidden layer",
        }
        assert "1: 1e-05" in repr(penalty)

    def test_groups_are_compared_within(self):
        net = self.net()
        weight = net[1].weight.detach()
        value = Penalty(net, orthonormality).per_layer()["1"]
        assert torch.allclose(
            value, (orthonormality(weight[:4].flatten(1)) + orthonormality(weight[4:].flatten(1))) / 2
        )
        assert neuron_weights(net)[0]["1"].rows().shape == (2, 4, 36)

    def test_the_classifier_by_name_or_none(self):
        assert list(Penalty(self.net(), orthonormality, classifier="4").per_layer()) == ["0", "1", "5"]
        assert list(Penalty(self.net(), orthonormality, classifier=False).per_layer()) == ["0", "1", "4", "5"]

    def test_refuses(self):
        net = self.net()
        with pytest.raises(ValueError, match="classifier must name"):
            Penalty(net, orthonormality, classifier="7")
        with pytest.raises(ValueError, match="hidden must be a number ≥ 0"):
            Penalty(net, orthonormality, hidden=-1.0)
        with pytest.raises(ValueError, match="no layer of ReLU is left"):
            Penalty(nn.ReLU(), orthonormality)
        with pytest.raises(ValueError, match="no module of Sequential is called"):
            Penalty(net, orthonormality, skip=["fc"])

    @pytest.mark.untyped
    def test_refuses_what_is_not_a_measure(self):
        with pytest.raises(ValueError, match="measure must be a function"):
            Penalty(self.net(), "orthonormal")

    @pytest.mark.untyped
    def test_the_base_class_is_abstract(self):
        with pytest.raises(TypeError, match="abstract"):
            Regularizer(nn.Linear(3, 4), hidden=1.0, output=1.0)


@pytest.mark.untyped
def test_the_covering_radius_as_a_regularizer_lowers_the_largest_hole():
    torch.manual_seed(0)
    layer = nn.Linear(3, 10)
    penalty = Penalty(nn.Sequential(layer, nn.Linear(10, 2)), covering_radius, hidden=1.0)
    before = penalty()
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        penalty().backward()
        optimizer.step()
    assert penalty() < before - 0.02
