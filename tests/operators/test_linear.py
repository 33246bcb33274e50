import inspect

import torch
from torch import nn

from hypersphere.operators import Linear


def test_is_a_linear_layer_to_others():
    layer = Linear(7, 5)
    assert isinstance(layer, nn.Linear)
    assert list(inspect.signature(Linear).parameters)[:5] == list(inspect.signature(nn.Linear).parameters)[:5]
    assert layer.in_features == 7


def test_any_number_of_leading_axes():
    layer, x = Linear(7, 5), torch.randn(2, 3, 4, 7)
    assert torch.allclose(layer(x).reshape(-1, 5), layer(x.reshape(-1, 7)), atol=1e-6)
    assert layer(x[0, 0, 0]).shape == (5,)


def test_bias_is_added_after_the_operator():
    layer = Linear(7, 5)
    layer.bias.data.fill_(3)
    assert torch.equal(layer(torch.zeros(2, 7)), torch.full((2, 5), 3.0))


def test_device_and_dtype():
    assert Linear(3, 4, dtype=torch.bfloat16)(torch.ones(1, 3, dtype=torch.bfloat16)).dtype == torch.bfloat16
    assert Linear(3, 4, device="meta")(torch.ones(1, 3, device="meta")).shape == (1, 4)
