import functools
from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hypersphere import models

from .contract import CONVOLUTIONS, ImageContract, layers_of


def discriminator(num_classes=1, **options):
    return models.discriminator(num_classes=num_classes, **options)


class TestDiscriminator(ImageContract):
    small: ClassVar = {"width": 1 / 16, "input_size": 16}
    size = (16, 16)
    feature_dim = 32 * 2 * 2
    norm = None
    activation = nn.LeakyReLU
    build = staticmethod(discriminator)


def test_table_d_5_b():
    with torch.device("meta"):
        net = models.discriminator()
    found = [(c.kernel_size[0], c.stride[0], c.out_channels) for c in layers_of(net, nn.Conv2d)]
    assert found == [(3, 1, 64), (4, 2, 64), (3, 1, 128), (4, 2, 128), (3, 1, 256), (4, 2, 256), (3, 1, 512)]
    assert {m.negative_slope for m in layers_of(net, nn.LeakyReLU)} == {0.1}
    assert not layers_of(net, nn.BatchNorm2d)
    assert net.classifier.weight.shape == (1, 512 * 4 * 4)


def test_table_d_5_a():
    with torch.device("meta"):
        net = models.generator()
    assert net.dense.weight.shape == (4 * 4 * 512, 128)
    found = [(type(c), c.kernel_size[0], c.stride[0], c.out_channels) for c in layers_of(net, CONVOLUTIONS)]
    assert found == [*((nn.ConvTranspose2d, 4, 2, n) for n in (256, 128, 64)), (nn.Conv2d, 3, 1, 3)]
    assert [m.num_features for m in layers_of(net, nn.BatchNorm2d)] == [256, 128, 64]
    assert len(layers_of(net, nn.ReLU)) == 3


@pytest.mark.parametrize("size", [8, 32])
def test_generated_images(size):
    net = models.generator(7, image_size=size, out_channels=2, width=1 / 16)
    images = net(torch.randn(3, 7))
    assert images.shape == (3, 2, size, size)
    assert images.abs().max() < 1
    assert images.std() > 0


def test_the_generator_s_factories_are_used():
    class Linear(nn.Linear):
        pass

    class Conv(nn.Conv2d):
        pass

    class Deconv(nn.ConvTranspose2d):
        pass

    net = models.generator(linear=Linear, conv=Conv, deconv=Deconv, norm=None, activation=nn.Tanh, width=1 / 16)
    assert {type(m) for m in net.modules() if isinstance(m, (nn.Linear, *CONVOLUTIONS))} == {Linear, Conv, Deconv}
    assert not layers_of(net, (nn.BatchNorm2d, nn.ReLU))


@pytest.mark.parametrize("image_size", [0, 4, 20])
def test_refuses_a_size(image_size):
    with pytest.raises(ValueError, match="image_size must be a multiple of 8"):
        models.generator(image_size=image_size)


def test_spectral_norm_bounds_every_weight_by_one():
    net = models.discriminator(spectral_norm=True, width=1 / 4, feature_dim=6)
    x = torch.randn(4, 3, 32, 32)
    for _ in range(60):  # one power iteration per forward pass
        net(x)
    net.eval()
    weights = [m.weight.flatten(1) for m in net.modules() if isinstance(m, (nn.Conv2d, nn.Linear))]
    assert len(weights) == 9
    assert all(torch.linalg.matrix_norm(w, 2).item() == pytest.approx(1, abs=0.02) for w in weights)


def test_spectral_norm_keeps_the_chosen_start():
    options = {"width": 1 / 8, "init": nn.init.ones_}
    plain, normalized = models.discriminator(**options), models.discriminator(spectral_norm=True, **options)
    conv = layers_of(normalized, nn.Conv2d)[2]
    assert torch.equal(conv.parametrizations.weight.original, layers_of(plain, nn.Conv2d)[2].weight)


def test_the_two_play():
    """One step of each network with the original loss (D.7) changes every parameter."""
    players = models.generator(8, width=1 / 16), models.discriminator(spectral_norm=True, width=1 / 16)
    generator, critic = players
    before = [p.clone() for net in players for p in net.parameters()]
    optimizers = [torch.optim.Adam(net.parameters(), lr=1e-2, betas=(0.5, 0.999)) for net in players]
    fake, real = generator(torch.randn(4, 8)), torch.rand(4, 3, 32, 32) * 2 - 1
    bce = functools.partial(F.binary_cross_entropy_with_logits)
    (bce(critic(real), torch.ones(4, 1)) + bce(critic(fake.detach()), torch.zeros(4, 1))).backward()
    optimizers[1].step()
    bce(critic(fake), torch.ones(4, 1)).backward()
    optimizers[0].step()
    assert all(
        not torch.equal(a, b) for a, b in zip(before, (p for net in players for p in net.parameters()), strict=True)
    )
