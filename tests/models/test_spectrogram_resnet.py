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


def test_a_block_is_the_rectified_sum_of_both_ways():
    block = SpectrogramBlock(2, 3, 2).eval()
    x = torch.rand(1, 2, 8, 8)
    assert torch.equal(block(x), torch.relu(block.body(x) + block.shortcut(x)))
    assert isinstance(SpectrogramBlock(3, 3, 1).shortcut, torch.nn.Identity)


@pytest.mark.untyped
def test_refuses():
    with pytest.raises(ValueError, match="bands must be a multiple of 8, got 20"):
        SpectrogramResNet(bands=20)
    with pytest.raises(ValueError, match="pooling must be 'statistics' or 'attentive', got 'max'"):
        SpectrogramResNet(pooling="max")
