import pytest
import torch
from torch import nn

from hypersphere.operators import Conv1d, Conv2d, Conv3d, Linear, magnitudes
from hypersphere.operators.magnitudes import Seg
from tests.operators.contracts import FormulaContract, MagnitudeContract

PLAIN = [
    (Linear, nn.Linear, (7, 5), {}, (3, 7)),
    (Conv1d, nn.Conv1d, (4, 6, 3), {"padding": "same"}, (2, 4, 9)),
    (Conv2d, nn.Conv2d, (4, 6, 3), {"stride": 2, "padding": 1, "groups": 2, "padding_mode": "reflect"}, (2, 4, 9, 8)),
    (Conv3d, nn.Conv3d, (4, 6, 2), {"dilation": 2}, (2, 4, 5, 5, 5)),
]


class TestLinear(MagnitudeContract):
    magnitude = magnitudes.Linear(alpha=0.7)

    def formula(self, w_norm, x_norm):
        return 0.7 * x_norm

    def test_is_a_special_case_of_seg(self):
        norms = torch.linspace(0, 20, 101, dtype=torch.float64)
        seg = Seg(alpha=0.7, beta=0.7, radius=3.0, learnable_radius=False)
        assert torch.allclose(seg.radial(norms), self.magnitude.radial(norms), atol=1e-14)
        assert torch.allclose(seg.gain(norms), self.magnitude.gain(norms), atol=1e-14)


class TestWeightedLinear(FormulaContract):
    magnitude = magnitudes.Linear(alpha=0.7, weighted="linear")

    def formula(self, w_norm, x_norm):
        return 0.7 * w_norm * x_norm


class TestInnerProduct(MagnitudeContract):
    magnitude = magnitudes.InnerProduct()

    def formula(self, w_norm, x_norm):
        return w_norm * x_norm


@pytest.mark.parametrize(
    "magnitude", [magnitudes.InnerProduct(), magnitudes.Linear(weighted="linear")], ids=["inner", "weighted"]
)
@pytest.mark.parametrize(("ours", "theirs", "sizes", "more", "shape"), PLAIN)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_plain_layer_to_the_last_bit(magnitude, ours, theirs, sizes, more, shape, dtype):
    layer, plain = ours(*sizes, **more, magnitude=magnitude, dtype=dtype), theirs(*sizes, **more, dtype=dtype)
    layer.load_state_dict(plain.state_dict())
    x = torch.randn(shape, dtype=dtype)
    a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
    out, expected = layer(a), plain(b)
    out.square().sum().backward()
    expected.square().sum().backward()
    assert torch.equal(out, expected)
    assert torch.equal(a.grad, b.grad)
    assert torch.equal(layer.weight.grad, plain.weight.grad)
    assert torch.equal(layer.bias.grad, plain.bias.grad)
