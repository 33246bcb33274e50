import pytest
import torch
from torch import nn

from hypersphere.models import Projected, TransformersNetwork


def test_projected_uses_features_where_there_are_some():
    class Own(nn.Module):
        def features(self, x):
            return x.flatten(1)[:, :4]

    net = Projected(Own(), 4, 3).eval()
    x = torch.randn(5, 1, 2, 2)
    torch.testing.assert_close(net(x), net.norm(x.flatten(1) @ net.projection.weight.T))
    assert net.feature_dim == 3


def test_projected_averages_maps():
    net = Projected(nn.Identity(), 2, 3).eval()
    x = torch.randn(5, 2, 4, 4)
    torch.testing.assert_close(net(x), net.norm(x.mean((2, 3)) @ net.projection.weight.T))


@pytest.mark.parametrize("config", ["{}", "no", '{"model_type": "no such model"}'])
def test_transformers_network_refuses(config):
    pytest.importorskip("transformers")
    with pytest.raises(ValueError, match="config must be the JSON of a vision model of transformers"):
        TransformersNetwork(config)
