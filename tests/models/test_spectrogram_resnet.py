import pytest
import torch

from hypersphere.config import call
from hypersphere.models import SpectrogramResNet
from hypersphere.models.spectrogram_resnet import SpectrogramBlock
from tests.models.speaker_contract import BANDS, FEATURES, SpeakerNetworkContract

SMALL = {"bands": BANDS, "widths": (4, 4, 8, 8), "feature_dim": FEATURES}


class TestStatistics(SpeakerNetworkContract):
    make = call(SpectrogramResNet, **SMALL)


class TestAttentive(SpeakerNetworkContract):
    make = call(SpectrogramResNet, **SMALL, pooling="attentive")


class TestFast(SpeakerNetworkContract):
    make = call(SpectrogramResNet, bands=BANDS, widths=(4, 4, 8, 8), feature_dim=FEATURES, stride=2, center=True)


def test_a_centered_network_does_not_see_the_microphone():
    network = SpectrogramResNet(**SMALL, center=True).eval()
    x = torch.rand(2, BANDS, 40)
    torch.testing.assert_close(network(x + torch.randn(BANDS, 1)), network(x), atol=1e-4, rtol=1e-4)


def test_any_number_of_bands_with_a_stride():
    assert SpectrogramResNet(**{**SMALL, "bands": 40}, stride=2)(torch.rand(2, 40, 30)).shape == (2, FEATURES)


def test_a_block_is_the_rectified_sum_of_both_ways():
    block = SpectrogramBlock(2, 3, 2).eval()
    x = torch.rand(1, 2, 8, 8)
    assert torch.equal(block(x), torch.relu(block.body(x) + block.shortcut(x)))
    assert isinstance(SpectrogramBlock(3, 3, 1).shortcut, torch.nn.Identity)


@pytest.mark.untyped
def test_refuses():
    with pytest.raises(ValueError, match="bands must be a multiple of 8, got 20"):
        SpectrogramResNet(bands=20)
    with pytest.raises(ValueError, match="stride must be 1 or 2, got 3"):
        SpectrogramResNet(stride=3)
    with pytest.raises(ValueError, match="pooling must be 'statistics' or 'attentive', got 'max'"):
        SpectrogramResNet(pooling="max")
