import functools
import typing
from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hypersphere import models, operators
from hypersphere.models import Layers, resnet
from hypersphere.models.resnet import PadShortcut, ResidualStage

from .contract import ImageContract, SphereConv2d, layers_of


def count(model):
    return sum(p.numel() for p in model.parameters())


class TestResNet20(ImageContract):
    small: ClassVar = {"width": 1 / 4}
    feature_dim = 16
    build = staticmethod(models.resnet20)


class TestResNet32OfC1(ImageContract):
    small: ClassVar = {"width": 1 / 24}
    feature_dim = 16
    everywhere: ClassVar = {"shortcut": "conv"}
    build = staticmethod(functools.partial(models.resnet32, table="C.1"))


class TestResNet18(ImageContract):
    small: ClassVar = {"width": 1 / 16}
    size = (32, 32)
    feature_dim = 32
    everywhere: ClassVar = {"shortcut": "conv"}
    build = staticmethod(models.resnet18)


class TestModifiedResNet18(ImageContract):
    small: ClassVar = {"width": 1 / 32}
    size = (33, 64)
    feature_dim = 32
    activation = nn.PReLU
    build = staticmethod(models.modified_resnet18)

    def test_the_table(self):
        """C.1: 17 convolutions and the classifier make 18 layers."""
        with torch.device("meta"):
            net = models.modified_resnet18()
        stages = [
            row for n, u in ((128, 1), (256, 2), (512, 3), (1024, 0)) for row in [(n, 3, 2)] + [(n, 3, 1)] * 2 * u
        ]
        assert [(c.out_channels, c.kernel_size[0], c.stride[0]) for c in layers_of(net, nn.Conv2d)] == [
            (128, 7, 2),
            *stages,
        ]
        assert len(stages) == 16

    def test_the_start_is_sphereface_s(self):
        for conv in layers_of(models.modified_resnet18(width=0.25), nn.Conv2d)[1:]:
            expected = 0.01 if conv.stride == (1, 1) else (1 / (conv.in_channels * 9)) ** 0.5
            assert conv.weight.std().item() == pytest.approx(expected, rel=0.05)


class TestSphereResNet18V1(ImageContract):
    small: ClassVar = {"width": 1 / 64}
    size = (32, 32)
    feature_dim = 16
    build = staticmethod(functools.partial(models.sphere_resnet18, version=1))


def test_parameters_of_the_imagenet_networks():
    """The numbers of parameters equal the published 11.69, 21.80 and 25.56 millions exactly."""
    with torch.device("meta"):
        assert count(models.resnet18(1000)) == 11_689_512
        assert count(models.resnet34(1000)) == 21_797_672
        assert count(models.resnet50(1000)) == 25_557_032


def test_parameters_of_the_cifar_networks_by_hand():
    # convolutions 9·(3·16 + 6·16² + 16·32 + 5·32² + 32·64 + 5·64²) = 267,696; 2·(7·16 + 6·32 + 6·64) of BN;
    # 64·10 + 10 of the classifier
    assert count(models.resnet20(10)) == 267_696 + 1_376 + 650
    # 1×1 shortcuts with BN: 16·32 + 32·64 + 2·(32 + 64)
    assert count(models.resnet20(10, shortcut="conv")) == 269_722 + 2_752
    assert count(models.resnet32(10)) == pytest.approx(0.46e6, rel=0.02)


@pytest.mark.parametrize(
    ("table", "widths"),
    [("B.2", (64, 96, 128)), ("C.1", (96, 192, 384)), ("D.2", (64, 128, 256)), ("F.2", (16, 32, 64))],
)
def test_resnet32_tables(table, widths):
    with torch.device("meta"):
        net = models.resnet32(100, table=table)
    convs = [c for c in layers_of(net, nn.Conv2d) if c.kernel_size == (3, 3)]
    assert [c.out_channels for c in convs] == [widths[0]] + [n for n in widths for _ in range(10)]
    assert [i for i, c in enumerate(convs) if c.stride == (2, 2)] == [11, 21]
    assert len(layers_of(net, nn.Conv2d)) - len(convs) == (0 if table == "F.2" else 2)
    assert net.feature_dim == widths[2]


def test_imagenet_tables():
    with torch.device("meta"):
        nets = models.resnet34(), models.sphere_resnet18(conv=nn.Conv2d)
    found = [[c.out_channels for c in layers_of(net, nn.Conv2d) if c.kernel_size != (1, 1)] for net in nets]
    assert found[0] == [64] + [64] * 6 + [128] * 8 + [256] * 12 + [512] * 6
    assert found[1] == [256] + [256] * 4 + [512] * 4 + [768] * 4 + [1024] * 4
    assert [layers_of(net, nn.Conv2d)[0].kernel_size for net in nets] == [(7, 7)] * 2
    assert nets[0].body(torch.zeros(1, 3, 224, 224, device="meta")).shape[2:] == (7, 7)


def test_the_versions_differ_in_the_shortcuts_only():
    types = {}
    for version in (1, 2):
        net = models.sphere_resnet18(5, version=version, conv=SphereConv2d, width=1 / 64)
        types[version] = {(type(c), c.kernel_size == (1, 1)) for c in layers_of(net, nn.Conv2d)}
        assert torch.isfinite(net(torch.randn(2, 3, 32, 32))).all()
    assert types == {1: {(SphereConv2d, True), (SphereConv2d, False)}, 2: {(nn.Conv2d, True), (SphereConv2d, False)}}


def test_sphere_conv_is_the_default_of_sphere_resnet():
    net = models.sphere_resnet18(5, version=1, width=1 / 64)
    assert {type(m) for m in layers_of(net, nn.Conv2d)} == {operators.Conv2d}
    assert {type(m.magnitude) for m in layers_of(net, nn.Conv2d)} == {operators.magnitudes.Sphere}
    baseline = models.sphere_resnet18(5, operator=None, width=1 / 64)
    assert {type(m) for m in layers_of(baseline, nn.Conv2d)} == {nn.Conv2d}


@pytest.mark.parametrize("norm", ["batch", "sphere"])
def test_shortcuts_stay_plain_under_an_operator(norm):
    net = models.resnet20(5, table="B.2", operator=operators.Operator(), norm=norm, width=1 / 16)
    kinds = {(c.kernel_size == (1, 1), isinstance(c, operators.OperatorLayer)) for c in layers_of(net, nn.Conv2d)}
    assert kinds == {(True, False), (False, True)}


def test_widths():
    net = models.resnet20(5, widths=(16, 32, 48))
    assert [c.out_channels for c in layers_of(net, nn.Conv2d)] == [16] * 7 + [32] * 6 + [48] * 6
    assert set(typing.get_args(resnet.Table)) == set(resnet.WIDTHS)


def test_a_unit_is_the_one_of_the_paper():
    net = models.resnet20(width=1 / 4, shortcut="conv").eval()
    unit, x = net.body.stage2[0], torch.randn(2, 4, 6, 6)
    first, second = unit.body
    inner = second.norm(second.conv(first.norm(first.conv(x)).relu()))
    assert torch.allclose(unit(x), (inner + unit.shortcut.norm(unit.shortcut.conv(x))).relu(), atol=1e-6)
    assert isinstance(net.body.stage2[1].shortcut, nn.Identity)


@pytest.mark.parametrize("shortcut", ["conv", "plain", "pad", nn.Conv2d])
@pytest.mark.parametrize("size", [6, 7])
def test_the_size_of_a_stage(size, shortcut):
    row = ResidualStage(4, 2, 2, shortcut)
    module, channels = row.build(Layers(), 3)
    assert module(torch.zeros(2, 3, size, size + 3)).shape == (2, channels, row.size(size), row.size(size + 3))


def test_the_padded_shortcut():
    x = torch.randn(2, 3, 5, 6)
    out = PadShortcut(4, 2)(x)
    assert torch.equal(out[:, :3], F.max_pool2d(x, 1, stride=2))
    assert out.shape == (2, 7, 3, 3)
    assert not out[:, 3:].any()


@pytest.mark.untyped
@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: models.cifar_resnet(21), r"depth must be 6n \+ 2 with n ≥ 1, got 21"),
        (lambda: models.cifar_resnet(2), r"depth must be 6n \+ 2 with n ≥ 1, got 2"),
        (lambda: models.resnet20(table="B.1"), "table must be one of 'B.2', 'C.1', 'D.2', 'F.2', got 'B.1'"),
        (lambda: models.resnet18(shortcut="zero"), "shortcut must be 'conv', 'plain', 'pad' or a layer factory, got"),
        (lambda: models.resnet18(widths=(8, 8)), r"widths must be 4 integers ≥ 1, one per stage, got \(8, 8\)"),
        (lambda: models.sphere_resnet18(version=3), "version must be 1 or 2, got 3"),
    ],
)
def test_refuses(build, message):
    with pytest.raises(ValueError, match=message):
        build()
