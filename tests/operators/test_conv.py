import inspect

import pytest
import torch
from torch import nn

from hypersphere.operators import Conv1d, Conv2d, Conv3d, magnitudes


@pytest.mark.parametrize(("ours", "plain"), [(Conv1d, nn.Conv1d), (Conv2d, nn.Conv2d), (Conv3d, nn.Conv3d)])
def test_torch_arguments_come_first_in_torch_order(ours, plain):
    names = list(inspect.signature(plain).parameters)
    assert list(inspect.signature(ours).parameters) == [*names, "magnitude", "angular"]
    assert isinstance(ours(2, 4, 3, 2, 1, 1, 2, False, "reflect"), plain)


def test_depthwise_filters_see_their_own_channel():
    layer = Conv2d(4, 4, 3, groups=4, bias=False)
    x = torch.randn(1, 4, 5, 5)
    louder = x * torch.tensor([1.0, 10.0, 100.0, 1000.0]).reshape(1, 4, 1, 1)
    assert torch.allclose(layer(louder), layer(x), atol=1e-6)


def test_padding_counts_as_zeros_in_the_patch():
    layer = Conv2d(1, 1, 3, padding=1, bias=False)
    layer.weight.data.fill_(1)
    corner = layer(torch.ones(1, 1, 3, 3))[0, 0, 0, 0]
    assert corner.item() == pytest.approx((4 / 9) ** 0.5)


def test_parametrizations_apply():
    layer = nn.utils.parametrizations.orthogonal(Conv2d(2, 4, 3, magnitude=magnitudes.Log()))
    x = torch.randn(1, 2, 5, 5)
    plain = Conv2d(2, 4, 3, magnitude=magnitudes.Log())
    plain.weight.data, plain.bias.data = layer.weight.data, layer.bias.data
    assert torch.allclose(layer(x), plain(x), atol=1e-6)
    layer(x).sum().backward()
    assert torch.isfinite(layer.parametrizations.weight.original.grad).all()


def test_meta_device_and_empty_batches():
    assert Conv2d(2, 4, 3, device="meta")(torch.ones(1, 2, 5, 5, device="meta")).shape == (1, 4, 3, 3)
    assert Conv2d(2, 4, 3)(torch.ones(0, 2, 5, 5)).shape == (0, 4, 3, 3)
