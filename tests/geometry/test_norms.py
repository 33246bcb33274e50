import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hypersphere.geometry import cosine, inverse_norm, norm, normalize


class TestNormalize:
    @pytest.mark.parametrize("exponent", [-38, -30, -20, -10, 0, 10, 20, 30, 37])
    @pytest.mark.parametrize("dim", [1, 2, 512])
    def test_is_of_unit_length_at_every_scale(self, exponent, dim):
        x = torch.randn(100, dim).clamp(-3, 3)
        x = x / x.norm(dim=-1, keepdim=True) * 10.0**exponent
        assert (normalize(x).double().norm(dim=-1) - 1).abs().max() <= 1e-6

    @given(st.integers(1, 20), st.floats(-30, 30), st.integers(0, 2**31))
    def test_agrees_with_float64(self, dim, exponent, seed):
        x = torch.randn(7, dim, generator=torch.Generator().manual_seed(seed)) * 10**exponent
        reference = x.double() / x.double().norm(dim=-1, keepdim=True)
        assert torch.allclose(normalize(x).double(), reference, atol=1e-6)

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
    def test_half_precision_is_accumulated_in_float32(self, dtype):
        x = torch.full((3, 4096), 50.0).to(dtype)  # the sum of squares is 1e7: beyond float16
        y = normalize(x)
        assert y.dtype == dtype
        assert torch.allclose(y.float(), torch.full_like(y.float(), 1 / 64), rtol=1e-6)

    def test_zero_has_no_direction_and_no_gradient(self):
        x = torch.zeros(2, 3, requires_grad=True)
        y = normalize(x)
        y.sum().backward()
        assert (y == 0).all()
        assert (x.grad == 0).all()

    def test_not_a_number_stays_one(self):
        x = torch.tensor([[float("nan"), 1.0], [3.0, 4.0]])
        assert normalize(x)[0].isnan().all()
        assert norm(x)[0].isnan()
        assert torch.allclose(normalize(x)[1], torch.tensor([0.6, 0.8]))

    def test_zero_beside_others_leaves_them_alone(self):
        x = torch.tensor([[0.0, 0.0], [3.0, 4.0]], requires_grad=True)
        normalize(x)[:, 0].sum().backward()
        assert torch.allclose(x.grad, torch.tensor([[0.0, 0.0], [0.128, -0.096]]))

    @pytest.mark.parametrize("dim", [0, 1, -1])
    def test_gradcheck(self, dim):
        x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(lambda x: normalize(x, dim), x)
        assert torch.autograd.gradgradcheck(lambda x: normalize(x, dim), x)

    def test_min_norm_bounds_the_gradient_and_keeps_the_value(self):
        x = torch.tensor([[3e-20, 4e-20], [3.0, 4.0]], requires_grad=True)
        y = normalize(x, min_norm=1e-3)
        assert torch.allclose(y, torch.tensor([[0.6, 0.8], [0.6, 0.8]]))
        y[:, 0].sum().backward()
        assert 0 < x.grad[0].norm() <= 1e3
        assert torch.allclose(x.grad[1], torch.tensor([0.128, -0.096]))

    def test_min_norm_is_a_length_in_any_dimension(self):
        direction = torch.full((1, 400), 0.05, dtype=torch.float64)
        pull = torch.eye(1, 400, dtype=torch.float64) - direction * 0.05
        for length in (1e-6, 1e-3, 2e-3, 1.0):
            x = (length * direction).requires_grad_()
            (normalize(x, min_norm=1e-3) * pull).sum().backward()
            assert torch.allclose(x.grad, pull / max(length, 1e-3))

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
    def test_keeps_the_dtype(self, dtype):
        x = torch.randn(3, 4).to(dtype)
        assert normalize(x).dtype == norm(x).dtype == cosine(x, x).dtype == dtype

    @pytest.mark.untyped
    def test_refuses_integers_and_empty_vectors(self):
        with pytest.raises(ValueError, match="floating-point"):
            normalize(torch.ones(3, dtype=torch.long))
        with pytest.raises(ValueError, match="at least one entry"):
            normalize(torch.ones(3, 0))


class TestNorm:
    @given(st.floats(-37, 36), st.integers(1, 9))
    def test_agrees_with_numpy(self, exponent, dim):
        x = torch.randn(5, dim) * 10**exponent
        assert torch.allclose(
            norm(x).double(), torch.from_numpy(np.linalg.norm(x.double().numpy(), axis=-1)), rtol=1e-6, atol=0
        )

    def test_gradient(self):
        assert torch.autograd.gradcheck(norm, torch.randn(4, 3, dtype=torch.float64, requires_grad=True))
        x = torch.zeros(3, requires_grad=True)
        norm(x).backward()
        assert (x.grad == 0).all()

    def test_dim_and_keepdim(self):
        x = torch.randn(2, 3, 4)
        assert torch.allclose(norm(x, 1), x.norm(dim=1))
        assert norm(x, 1, keepdim=True).shape == (2, 1, 4)


class TestCosine:
    def test_aligned_and_pairwise_agree_with_float64(self):
        x, w = torch.randn(6, 5), torch.randn(4, 5)
        reference = torch.nn.functional.cosine_similarity(x.double()[:, None], w.double()[None], dim=-1)
        assert torch.allclose(cosine(x, w, pairwise=True).double(), reference, atol=1e-6)
        assert torch.allclose(cosine(x[:4], w).double(), reference.diagonal(), atol=1e-6)
        assert torch.allclose(cosine(x[:, None], w[None]).double(), reference, atol=1e-6)

    def test_never_leaves_the_interval(self):
        x = torch.randn(1000, 7)
        assert cosine(x, 3 * x).max() <= 1
        assert cosine(x, -3 * x).min() >= -1

    def test_extreme_lengths(self):
        x = torch.tensor([[1e30, 1e30], [1e-30, 0.0], [0.0, 0.0]])
        w = torch.tensor([1.0, 1.0])
        assert torch.allclose(cosine(x, w), torch.tensor([1.0, math.sqrt(0.5), 0.0]))

    def test_gradcheck(self):
        x, w = (torch.randn(n, 3, dtype=torch.float64, requires_grad=True) for n in (4, 2))
        assert torch.autograd.gradcheck(lambda x, w: cosine(x, w, pairwise=True), (x, w))

    def test_stays_precise_under_autocast(self):
        x, w = torch.randn(6, 64), torch.randn(4, 64)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            cos = cosine(x, w, pairwise=True)
        assert cos.dtype == torch.float32
        assert torch.allclose(cos, cosine(x, w, pairwise=True), atol=1e-6)

    @pytest.mark.untyped
    def test_says_what_is_wrong_with_the_shapes(self):
        with pytest.raises(ValueError, match="same last dimension"):
            cosine(torch.randn(3, 4), torch.randn(3, 5))
        with pytest.raises(ValueError, match="pass pairwise=True"):
            cosine(torch.randn(3, 4), torch.randn(2, 4))
        with pytest.raises(ValueError, match="pairwise needs rows"):
            cosine(torch.randn(4), torch.randn(2, 4), pairwise=True)


@pytest.mark.parametrize("length", [1e-40, 1e-25, 1.0, 1e25, 1e38])
def test_inverse_norms_of_any_length(length):
    x = torch.tensor([[0.6, 0.8], [0.0, 0.0], [1.0, 0.0]])
    x[0] *= length
    expected = torch.tensor([1 / torch.tensor(length).double().item(), 0.0, 1.0], dtype=torch.float64)
    found = inverse_norm(x).double()
    if length > 1e-39:  # below, the inverse overflows float32
        assert torch.allclose(found, expected, rtol=1e-5)
    assert found[1] == 0
    assert found[2] == 1


def test_inverse_norms_of_nan_are_nan():
    assert inverse_norm(torch.tensor([[torch.nan, 1.0]])).isnan().all()


def test_the_inverse_of_a_length_below_the_normal_numbers_is_finite():
    from hypersphere.geometry.norms import inverse_norm

    tiny = torch.tensor([[1e-45, 0.0], [1e-40, 1e-40], [1e-38, 0.0]])
    found = inverse_norm(tiny)
    assert found.isfinite().all()
    assert (tiny.norm(dim=1) * found <= 1.001).all()
