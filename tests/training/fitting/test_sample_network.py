import pytest
import torch
from torch import nn

from hypersphere import models
from hypersphere.config import find_builders
from hypersphere.training.fitting.sample_network import SampleNetwork, maps_samples_to_features


@pytest.mark.parametrize("name", ["ConvNet", "ECAPA", "EfficientNetLite0", "IResNet", "MLP", "PointNet", "Descriptors"])
def test_networks_of_samples_belong_to_it(name):
    assert issubclass(getattr(models, name), SampleNetwork)


@pytest.mark.parametrize(
    "name",
    [
        "GCN",  # two inputs
        "SphereVelocity",  # two inputs
        "Generator",  # codes to pictures
        "GPTLanguageModel",  # tokens to scores for each position
        "Autoencoder",  # pictures to pictures
        "Residual",  # feature maps to feature maps
    ],
)
def test_other_networks_do_not(name):
    assert not maps_samples_to_features(getattr(models, name))


def test_a_network_without_annotations_belongs_to_it():
    class Own(nn.Module):
        def forward(self, x, scale=1.0):
            return x.flatten(1) * scale

    assert issubclass(Own, SampleNetwork)
    assert not issubclass(int, SampleNetwork)


def test_builders_are_found_by_what_they_return():
    found = find_builders(SampleNetwork, ("hypersphere.models",))
    assert {"resnet20", "sphereface10", "timm_network"} <= set(found)
    assert not {"gcn", "generator"} & set(found)
    with torch.device("meta"):
        network = found["resnet20"](None)
    assert isinstance(network, models.Network)
