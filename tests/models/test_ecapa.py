import numpy as np
import pytest
import torch

from hypersphere.config import call
from hypersphere.models import ECAPA
from hypersphere.models.ecapa import Res2Convolution, SqueezeExcitation
from tests.models.speaker_contract import BANDS, FEATURES, SpeakerNetworkContract


class TestECAPA(SpeakerNetworkContract):
    make = call(ECAPA, bands=BANDS, channels=16, feature_dim=FEATURES, scale=4, hidden=8)


def test_groups_of_channels_see_the_group_before():
    layer = Res2Convolution(8, 3, 2, 4).eval()
    x = torch.rand(1, 8, 10)
    y = layer(x)
    torch.testing.assert_close(y[:, :2], x[:, :2])
    torch.testing.assert_close(y[:, 2:4], layer.parts[0](x[:, 2:4]))
    torch.testing.assert_close(y[:, 4:6], layer.parts[1](x[:, 4:6] + y[:, 2:4]))


def test_squeeze_and_excitation_against_its_formula():
    layer = SqueezeExcitation(4, 3).double()
    x = torch.rand(2, 4, 7, dtype=torch.double)
    first, second = layer.weigh[0], layer.weigh[2]
    hidden = np.maximum(x.mean(2).numpy() @ first.weight[:, :, 0].detach().numpy().T + first.bias.detach().numpy(), 0)
    gate = 1 / (1 + np.exp(-(hidden @ second.weight[:, :, 0].detach().numpy().T + second.bias.detach().numpy())))
    np.testing.assert_allclose(layer(x).detach().numpy(), x.numpy() * gate[:, :, None], rtol=1e-12)


@pytest.mark.untyped
def test_refuses():
    with pytest.raises(ValueError, match="channels must be a multiple of scale = 8, got 20"):
        ECAPA(channels=20)
