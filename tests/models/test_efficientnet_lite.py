import pytest
import torch

from hypersphere.models import EfficientNetLite0
from hypersphere.models.efficientnet_lite import SameConv2d, read_efficientnet_lite0


@pytest.mark.parametrize(("side", "kernel", "stride"), [(7, 3, 1), (7, 3, 2), (8, 3, 2), (9, 5, 2), (8, 1, 1)])
def test_same_padding_keeps_the_size_up_to_the_stride(side, kernel, stride):
    conv = SameConv2d(2, 3, kernel, stride)
    assert conv(torch.zeros(1, 2, side, side + 1)).shape[2:] == (-(-side // stride), -(-(side + 1) // stride))


def test_the_published_count_of_parameters():
    """Lite0 has 4.7 million parameters with the classifier of 1,000 classes."""
    count = sum(parameter.numel() for parameter in EfficientNetLite0().parameters())
    assert count + 1280 * 1000 + 1000 == 4_652_008


def test_other_weights_are_refused():
    with pytest.raises(ValueError, match="these are not the weights of EfficientNet-Lite0"):
        read_efficientnet_lite0({"weight": torch.zeros(1)})
