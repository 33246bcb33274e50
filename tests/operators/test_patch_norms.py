import pytest
import torch
from torch import nn
from torch.nn import functional as F

from hypersphere.geometry.fast_norms import MIN_NORM, bounded_inverse
from hypersphere.operators import patch_norms, tiling
from hypersphere.operators.patch_norms import bounded_rsqrt, bounded_sqrt, sum_patch_squares, sum_squares


@pytest.mark.parametrize("groups", [1, 2, 6])
@pytest.mark.parametrize("dim", [-1, -2, -3])
def test_squares_by_groups(groups, dim):
    x = torch.randn(6, 6, 6, dtype=torch.float64)
    sums, same = sum_squares(x, dim, groups)
    assert torch.equal(same, x)
    parts = torch.stack([part.square().sum(dim) for part in x.chunk(groups, dim)], dim)
    assert torch.allclose(sums, parts)


@pytest.mark.parametrize("groups", [1, 2])
def test_squares_gradcheck(groups):
    x = torch.randn(2, 4, 3, dtype=torch.float64, requires_grad=True)
    call = lambda x: sum_squares(x, -2, groups)
    assert torch.autograd.gradcheck(call, x)
    assert torch.autograd.gradgradcheck(call, x)


def test_squares_of_half_precision_do_not_overflow():
    x = torch.full((1, 4096), 100.0, dtype=torch.float16, requires_grad=True)
    sums, _ = sum_squares(x, -1)
    sums.sum().backward()
    assert sums.item() == 4096 * 100.0**2
    assert x.grad.dtype == torch.float16
    assert (x.grad == 200).all()


@pytest.mark.parametrize("mode", ["zeros", "reflect", "replicate", "circular"])
@pytest.mark.parametrize("dilation", [1, 2])
def test_agrees_with_unfold(mode, dilation):
    layer = nn.Conv2d(3, 4, (3, 2), stride=2, padding=(2, 1), dilation=dilation, padding_mode=mode)
    x = torch.randn(2, 3, 9, 8, dtype=torch.float64)
    padded = F.pad(x, (1, 1, 2, 2), mode="constant" if mode == "zeros" else mode)
    expected = F.unfold(padded, (3, 2), dilation=dilation, stride=2).square().sum(1)
    assert torch.allclose(sum_patch_squares(sum_squares(x, -3)[0], layer).flatten(1), expected)


def test_root_is_the_norm_with_a_bounded_slope():
    square = torch.tensor([4.0, MIN_NORM**2, 1e-30, 0.0], dtype=torch.float64, requires_grad=True)
    value = bounded_sqrt(square)
    value.sum().backward()
    assert value[:2].tolist() == pytest.approx([2.0, MIN_NORM])
    assert value[3] == 0
    assert torch.isfinite(square.grad).all()
    assert (square.grad <= 1 / MIN_NORM).all()


def test_the_inverse_root_is_the_inverse_of_the_root_with_both_derivatives():
    square = torch.tensor([4.0, 0.3, MIN_NORM**2, 0.5 * MIN_NORM**2, 1e-30, 0.0], dtype=torch.float64)
    first, second = (square.clone().requires_grad_() for _ in range(2))
    values = bounded_rsqrt(first), bounded_inverse(bounded_sqrt(second))
    assert torch.allclose(*values, rtol=1e-12)
    slopes = [torch.autograd.grad(v.sum(), s)[0] for v, s in zip(values, (first, second), strict=True)]
    at_the_kink = square == MIN_NORM**2
    assert torch.allclose(slopes[0][~at_the_kink], slopes[1][~at_the_kink], rtol=1e-9)
    assert torch.isfinite(slopes[0]).all()
    place = torch.rand(5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(bounded_rsqrt, place)
    assert torch.autograd.gradgradcheck(bounded_rsqrt, place)
    assert torch.equal(torch.vmap(bounded_rsqrt)(square), bounded_rsqrt(square))


@pytest.mark.parametrize("shape", [(2, 1, 7), (1, 2, 6, 7), (1, 1, 5, 6, 4)])
@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (2, 1), (3, 2)])
def test_windows_agree_with_a_convolution_of_ones_and_both_derivatives(shape, stride, dilation):
    axes = len(shape) - 2
    size = (2, 1, 2)[:axes]
    kind = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[axes - 1]
    layer = kind(1, 1, size, stride=stride, dilation=dilation)
    x = torch.rand(shape, dtype=torch.float64, requires_grad=True)
    ones = torch.ones(shape[1], 1, *size, dtype=torch.float64)
    convolve = (F.conv1d, F.conv2d, F.conv3d)[axes - 1]
    expected = convolve(x, ones, stride=stride, dilation=dilation, groups=shape[1])
    assert torch.allclose(sum_patch_squares(x, layer), expected)
    assert torch.autograd.gradcheck(lambda x: sum_patch_squares(x, layer), x)
    assert torch.autograd.gradgradcheck(lambda x: sum_patch_squares(x, layer), x)


@pytest.mark.parametrize("groups", [1, 2])
def test_squares_in_tiles_and_into_an_owned_gradient(groups, monkeypatch):
    monkeypatch.setattr(tiling, "TILE", 16)
    x = torch.randn(5, 4, 3, dtype=torch.float64, requires_grad=True)
    sums, _ = sum_squares(x, -2, groups)
    assert torch.allclose(sums, x.unflatten(-2, (groups, -1)).square().sum(-2))

    def call(x):
        sums, same = sum_squares(x, -2, groups, owned=True)
        return sums, same.sin()

    assert torch.autograd.gradcheck(call, x)
    assert torch.autograd.gradgradcheck(call, x)


@pytest.mark.parametrize("stride", [1, 2, (2, 3)])
@pytest.mark.parametrize(("size", "padding"), [(1, 0), (3, 1), ((5, 2), (2, 0)), (2, 1), (3, 2), (3, "valid")])
def test_small_maps_are_pooled_to_the_same_sums(monkeypatch, size, padding, stride):
    sums, layer = torch.rand(2, 3, 9, 8), torch.nn.Conv2d(3, 3, size, stride, padding, groups=3)
    pooled = sum_patch_squares(sums, layer)
    monkeypatch.setattr(patch_norms, "MAX_POOLED", 0)
    added = sum_patch_squares(sums, layer)
    assert pooled.shape == added.shape
    assert torch.allclose(pooled, added, rtol=1e-5, atol=0)
