"""ECAPA-TDNN, the ResNet over spectrograms and their pooling: formulas, any length, learning, files."""

import numpy as np
import pytest
import torch
from torch import nn

from hypersphere.config import call
from hypersphere.data import AudioPreprocessing
from hypersphere.models import ECAPA, AttentivePooling, SpectrogramResNet, StatisticsPooling, pool_statistics
from hypersphere.models.ecapa import Res2Convolution
from hypersphere.recognition import Embedder
from tests.data.voices import voice

SMALL = [
    call(ECAPA, bands=16, channels=16, feature_dim=8, scale=4, hidden=8),
    call(SpectrogramResNet, bands=16, widths=(4, 4, 8, 8), feature_dim=8),
    call(SpectrogramResNet, bands=16, widths=(4, 4, 8, 8), feature_dim=8, pooling="attentive"),
]


def test_statistics_are_mean_and_deviation():
    x = torch.rand(2, 3, 20)
    expected = np.concatenate([x.numpy().mean(2), x.numpy().std(2)], 1)
    np.testing.assert_allclose(StatisticsPooling()(x).numpy(), expected, atol=1e-5)
    weights = torch.rand(2, 3, 20)
    weights /= weights.sum(2, keepdim=True)
    w, y = weights.double().numpy(), x.double().numpy()
    mean = (w * y).sum(2)
    deviation = np.sqrt((w * (y - mean[..., None]) ** 2).sum(2))
    np.testing.assert_allclose(pool_statistics(x, weights).numpy(), np.concatenate([mean, deviation], 1), atol=1e-5)


def test_equal_attention_is_plain_statistics():
    pool = AttentivePooling(3, 4).eval()
    nn.init.zeros_(pool.attention[-1].weight)
    nn.init.zeros_(pool.attention[-1].bias)
    x = torch.rand(2, 3, 20)
    torch.testing.assert_close(pool(x), pool_statistics(x), atol=1e-5, rtol=1e-4)


def test_groups_of_channels_see_the_group_before():
    layer = Res2Convolution(8, 3, 2, 4).eval()
    x = torch.rand(1, 8, 10)
    y = layer(x)
    torch.testing.assert_close(y[:, :2], x[:, :2])
    torch.testing.assert_close(y[:, 2:4], layer.parts[0](x[:, 2:4]))
    torch.testing.assert_close(y[:, 4:6], layer.parts[1](x[:, 4:6] + y[:, 2:4]))


@pytest.mark.parametrize("made", SMALL, ids=["ecapa", "resnet", "attentive"])
def test_any_length_gradients_and_files(tmp_path, made):
    torch.manual_seed(0)
    network = made.build()
    for frames in (16, 50):
        assert network(torch.rand(3, 16, frames)).shape == (3, 8)
    network(torch.rand(3, 16, 50)).square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())
    embedder = Embedder(network, AudioPreprocessing(frames=40, step=20, bands=16), made)
    embedder.save(tmp_path / "a.safetensors")
    again = Embedder.load(tmp_path / "a.safetensors")
    torch.testing.assert_close(again(voice(0)), embedder(voice(0)))


@pytest.mark.parametrize("made", SMALL, ids=["ecapa", "resnet", "attentive"])
def test_it_learns_three_voices(made):
    torch.manual_seed(0)
    prepare = AudioPreprocessing(frames=40, step=20, bands=16)
    x = torch.cat([prepare(voice(person, take, 0.5))[None] for person in range(3) for take in range(4)])
    labels = torch.arange(3).repeat_interleave(4)
    network, head = made.build(), nn.Linear(8, 3)
    optimizer = torch.optim.Adam([*network.parameters(), *head.parameters()], lr=1e-2)
    for _ in range(20):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(head(network(x)), labels)
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.5


@pytest.mark.untyped
def test_refuses():
    with pytest.raises(ValueError, match="channels must be a multiple of scale = 8, got 20"):
        ECAPA(channels=20)
    with pytest.raises(ValueError, match="bands must be a multiple of 8, got 20"):
        SpectrogramResNet(bands=20)
    with pytest.raises(ValueError, match="pooling must be 'statistics' or 'attentive', got 'max'"):
        SpectrogramResNet(pooling="max")
