import pytest
import torch

from hypersphere.orthogonal.finetuning.block_rotation import skew_cayley
from hypersphere.orthogonal.finetuning.rotated_linear import apply_rotated_linear


@pytest.mark.parametrize("tokens", [3, 50])
@pytest.mark.parametrize("inputs", [True, False])
def test_equals_the_dense_product_with_its_gradients(tokens, inputs):
    weight, bias = torch.randn(9, 8, dtype=torch.float64), torch.randn(9, dtype=torch.float64, requires_grad=True)
    x = torch.randn(2, tokens, 8, dtype=torch.float64, requires_grad=inputs)
    raw = torch.randn(1, 2, 6, dtype=torch.float64, requires_grad=True)
    g = torch.randn(2, tokens, 9, dtype=torch.float64)
    leaves = [t for t in (x, bias, raw) if t.requires_grad]
    y = apply_rotated_linear(x, weight, bias, skew_cayley(raw, 4))
    expected = x @ torch.block_diag(*skew_cayley(raw, 4)[0]) @ weight.T + bias
    assert torch.allclose(y, expected, atol=1e-12)
    for a, b in zip(torch.autograd.grad(y, leaves, g), torch.autograd.grad(expected, leaves, g), strict=True):
        assert torch.allclose(a, b, atol=1e-11)


def test_without_bias():
    weight, x = torch.randn(3, 8), torch.randn(5, 8, requires_grad=True)
    eye = torch.eye(4).expand(1, 2, 4, 4)
    assert torch.equal(apply_rotated_linear(x, weight, None, eye), torch.nn.functional.linear(x, weight))
