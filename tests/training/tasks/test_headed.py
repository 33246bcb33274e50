import torch
from torch import nn

from hypersphere import models
from hypersphere.objectives import ArcFace
from hypersphere.training.tasks.headed import Headed, with_head
from tests.training.own import Net, Tokens


def test_any_module_gets_a_head_beside_it():
    head = ArcFace(6, 5)
    for body in (Net(), Tokens()):
        net = with_head(body, head)
        assert isinstance(net, Headed)
        assert net.features(torch.rand(2, 3, 12, 12)).shape == (2, 6)
        assert net(torch.rand(2, 3, 12, 12)).shape == (2, 5)
    assert Headed(Net(), None)(torch.rand(2, 3, 12, 12)).shape == (2, 6)


def test_a_network_of_the_library_has_a_place_for_it():
    model = models.mlp(None, in_features=4)
    head = nn.Linear(model.feature_dim, 3)
    assert with_head(model, head) is model
    assert model.classifier is head
