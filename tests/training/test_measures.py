import math

import pytest
import torch

import hypersphere as hs
from hypersphere.models import ConvNet
from hypersphere.models.blocks import Conv
from hypersphere.training.measures import annealing_value, feature_measures, layer_energies


def test_energies_of_layers_and_of_the_classes() -> None:
    net = ConvNet([Conv(4), Conv(1)], 3, input_size=4, fc=[2], classifier=hs.SphereFace)
    energies = layer_energies(net)
    head = net.classifier.weight
    unit = head / head.norm(dim=1, keepdim=True)
    pairs = [(unit[i] - unit[j]).square().sum().reciprocal().item() for i in range(3) for j in range(3) if i != j]
    assert energies["energy/classifier"] == pytest.approx(sum(pairs) / 6, rel=1e-5)
    assert [key for key in energies if "conv2" in key] == []  # one neuron has no energy
    assert len(energies) == 3


def test_angles_of_orthogonal_classes() -> None:
    features = torch.tensor([[2.0, 0.0], [4.0, 0.0], [0.0, 2.0], [0.0, 4.0]])
    values = feature_measures(features, torch.tensor([0, 0, 1, 1]))
    assert values["intra_angle"] == pytest.approx(0, abs=1e-3)
    assert values["inter_angle"] == pytest.approx(math.pi / 2, abs=1e-6)
    assert values["nearest_angle"] == pytest.approx(math.pi / 2, abs=1e-6)
    assert values["feature_norm"] == 3.0
    assert values["feature_norm_std"] == pytest.approx(math.sqrt(4 / 3))


def test_one_dimension_or_one_class_has_no_angles() -> None:
    assert feature_measures(torch.ones(4, 1), torch.tensor([0, 0, 1, 1])).keys() == {"feature_norm", "feature_norm_std"}
    assert feature_measures(torch.ones(4, 2), torch.zeros(4, dtype=torch.long)).keys() == {
        "feature_norm",
        "feature_norm_std",
    }


def test_lambda_is_the_heads_own() -> None:
    head = hs.SphereFace(2, 3, annealing=hs.Annealing(start=10, floor=1, rate=1, power=1))
    head.step()
    assert annealing_value(head) == {"lambda": 5.0}
    assert annealing_value(hs.Softmax(2, 3)) == {}
