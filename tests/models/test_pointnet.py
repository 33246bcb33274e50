import functools
from typing import ClassVar

import pytest
import torch
from torch import nn

from hypersphere import geometry, models
from hypersphere.config import call
from hypersphere.data import InMemory
from hypersphere.objectives import Softmax
from hypersphere.training import Classification

from .contract import ModelContract, SphereConv1d, layers_of


class TestPointNet(ModelContract):
    small: ClassVar = {"width": 1 / 16, "dropout": 0.0}
    feature_dim = 16
    sphere_conv = SphereConv1d
    norm = nn.BatchNorm1d
    build = staticmethod(models.pointnet)

    def inputs(self, batch=4):
        return (torch.randn(batch, 3, 20, generator=torch.Generator().manual_seed(1)),)

    def test_the_order_of_the_points_does_not_matter(self):
        model, (x,) = self.make().eval(), self.inputs()
        with torch.no_grad():
            for p in model.parameters():
                p.add_(torch.randn_like(p), alpha=0.05)
        assert torch.allclose(model(x[:, :, torch.randperm(20)]), model(x), atol=1e-5)
        assert not torch.allclose(model(x.flip(1)), model(x), atol=1e-3)

    def test_any_number_of_points(self):
        assert self.make()(torch.randn(2, 3, 7)).shape == (2, 5)


class TestPointNetWithTNet(TestPointNet):
    plain_linears = 2  # the layers that output the matrices
    build = staticmethod(functools.partial(models.pointnet, t_net=True))

    def test_starts_as_the_network_without(self):
        """Both transforms are the identity, so only the shared layers matter."""
        with_t, without = self.make().eval(), models.pointnet(5, **self.small).eval()
        without.load_state_dict({key: value for key, value in with_t.state_dict().items() if "transform" not in key})
        assert torch.allclose(with_t(*self.inputs()), without(*self.inputs()), atol=1e-5)

    def test_starts_at_the_identity(self):
        model, (x,) = self.make(), self.inputs()
        assert torch.equal(model.input_transform(x), torch.eye(3).expand(4, 3, 3))
        transform = model.features_and_transform(x)[1]
        assert torch.equal(transform, torch.eye(4).expand(4, 4, 4))
        assert geometry.orthonormality(transform) == 0

    def test_transforms_are_applied_to_the_coordinates(self):
        model, (x,) = self.make().eval(), self.inputs()
        rotation = torch.linalg.qr(torch.randn(3, 3)).Q
        with torch.no_grad():
            model.input_transform.matrix.bias.copy_(rotation.flatten())
        turned, plain = model(x), self.make().eval()
        plain.load_state_dict(model.state_dict())
        with torch.no_grad():
            plain.input_transform.matrix.bias.copy_(torch.eye(3).flatten())
        assert torch.allclose(plain(rotation @ x), turned, atol=1e-5)


def test_the_layers_of_the_paper():
    with torch.device("meta"):
        net = models.pointnet()
    assert [c.out_channels for c in layers_of(net, nn.Conv1d)] == [64, 64, 64, 128, 1024]
    assert {c.kernel_size for c in layers_of(net, nn.Conv1d)} == {(1,)}
    assert [m.out_features for m in layers_of(net, nn.Linear)] == [512, 256]
    assert net.classifier.weight.shape == (40, 256)
    assert net.features_and_transform(torch.zeros(2, 3, 5, device="meta"))[1] is None


def test_the_layers_of_t_net():
    with torch.device("meta"):
        net = models.pointnet(t_net=True)
    for transform, k in ((net.input_transform, 3), (net.feature_transform, 64)):
        assert [c.out_channels for c in layers_of(transform, nn.Conv1d)] == [64, 128, 1024]
        assert [m.out_features for m in layers_of(transform, nn.Linear)] == [512, 256, k * k]


def test_dropout_is_before_the_classifier_and_for_training():
    net = models.pointnet(5, width=1 / 8, dropout=0.5)
    x = torch.randn(4, 3, 20)
    assert (net.features(x) == 0).float().mean() > (net.eval().features(x) == 0).float().mean()
    assert models.pointnet(5, width=1 / 8).dropout.p == pytest.approx(0.3)


def test_t_net_brings_a_second_dropout_and_the_penalty_of_its_transform():
    net = models.pointnet(5, t_net=True, width=1 / 8)
    assert [m.p for m in layers_of(net, nn.Dropout)] == [0.3, 0.3]
    with torch.no_grad():
        for p in net.parameters():
            p.add_(torch.randn_like(p), alpha=0.1)
    x = torch.randn(4, 3, 20)
    net.features(x)
    penalty = net.auxiliary_losses()["transform"]
    matrices = net._transform.detach().double()
    expected = 0.001 * sum(((a @ a.T - torch.eye(len(a))).square().sum() / 2) for a in matrices)
    assert penalty.requires_grad
    assert penalty.item() == pytest.approx(expected.item(), rel=1e-4)
    assert models.pointnet(5, width=1 / 8).auxiliary_losses() == {}
    with pytest.raises(ValueError, match="transform_penalty must be a number ≥ 0, got -1"):
        models.pointnet(5, transform_penalty=-1)


def test_the_penalty_is_part_of_the_loss():
    clouds = InMemory(torch.randn(8, 20, 3), torch.arange(8) % 2, "ab")
    task = Classification(models.pointnet(None, t_net=True, width=1 / 16), call(Softmax), clouds, batch_size=4)
    loss, parts = task.train()(0, *next(iter(task.loader)))
    assert list(parts) == ["objective", "transform"]
    assert torch.equal(loss, parts["objective"] + parts["transform"])
