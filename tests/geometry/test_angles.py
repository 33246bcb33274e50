import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hypersphere.geometry import angle, arccos, arcsin, geodesic_distance, sine


def exact_angle(x, w):
    """Compute the angle by Kahan's formula in float64 from the unchanged float32 entries."""
    x, w = x.double(), w.double()
    x, w = x / x.norm(dim=-1, keepdim=True), w / w.norm(dim=-1, keepdim=True)
    return 2 * torch.atan2((x - w).norm(dim=-1), (x + w).norm(dim=-1))


class TestAngle:
    @pytest.mark.parametrize("apart", [1e-4, 1e-3, 1e-2, 1.0, 3.0, math.pi - 1e-3, math.pi - 1e-4])
    @pytest.mark.parametrize("dim", [2, 3, 64, 512])
    @pytest.mark.parametrize("scale", [1e-20, 1.0, 1e20])
    def test_is_right_where_arccos_is_not(self, apart, dim, scale):
        x = torch.nn.functional.normalize(torch.randn(200, dim, dtype=torch.float64), dim=-1)
        v = torch.randn(200, dim, dtype=torch.float64)
        v = torch.nn.functional.normalize(v - (v * x).sum(-1, keepdim=True) * x, dim=-1)
        lengths = torch.rand(200, 1, dtype=torch.float64) + 0.5
        w = (lengths * (math.cos(apart) * x + math.sin(apart) * v)).float()
        x = (scale * x).float()
        reference = exact_angle(x, w)
        for measured in (angle(x, w), angle(x[:, None], w[:, None], pairwise=True).flatten()):
            # Near π the result itself is rounded to a multiple of 2⁻²².
            error = (measured.double() - reference).abs() - (2.0**-23 if apart > 2 else 0)
            assert (error / torch.minimum(reference, math.pi - reference)).max() <= 1e-3

    @given(st.integers(2, 9), st.integers(0, 2**31))
    def test_agrees_with_float64(self, dim, seed):
        generator = torch.Generator().manual_seed(seed)
        x, w = torch.randn(2, 8, dim, generator=generator)
        assert torch.allclose(angle(x, w).double(), exact_angle(x, w), rtol=1e-5)

    def test_gradcheck(self):
        x, w = torch.randn(2, 5, 3, dtype=torch.float64)
        x, w = x.requires_grad_(), w.requires_grad_()
        assert torch.autograd.gradcheck(angle, (x, w))
        assert torch.autograd.gradgradcheck(angle, (x, w))
        assert torch.autograd.gradcheck(lambda x, w: angle(x, w, pairwise=True), (x, w))

    @pytest.mark.parametrize("pairwise", [False, True])
    @pytest.mark.parametrize(("factor", "expected"), [(1.0, 0.0), (7.0, 0.0), (-3.0, math.pi), (0.0, math.pi / 2)])
    def test_parallel_antiparallel_and_zero(self, factor, expected, pairwise):
        x = torch.randn(1, 6, requires_grad=True)
        w = (factor * x.detach()).requires_grad_()
        theta = angle(x, w, pairwise=pairwise)
        theta.sum().backward()
        assert torch.allclose(theta, torch.full_like(theta, expected), atol=1e-6)
        assert torch.isfinite(x.grad).all()
        assert torch.isfinite(w.grad).all()

    def test_both_zero_is_a_right_angle(self):
        x = torch.zeros(3, requires_grad=True)
        theta = angle(x, torch.zeros(3))
        theta.backward()
        assert theta.item() == pytest.approx(math.pi / 2)
        assert (x.grad == 0).all()

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
    def test_keeps_the_dtype(self, dtype):
        x, w = torch.randn(2, 4, 5).to(dtype)
        assert angle(x, w).dtype == dtype
        assert torch.allclose(angle(x, w).double(), exact_angle(x, w), rtol=1e-2)

    def test_under_autocast(self):
        x, w = torch.randn(2, 4, 5)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert torch.equal(angle(x, w), angle(x.clone(), w.clone()))
            assert angle(x, w).dtype == torch.float32

    def test_geodesic_distance_is_a_metric(self):
        x, y, z = torch.randn(3, 500, 4)
        assert torch.equal(geodesic_distance(x, y), geodesic_distance(y, x)) or torch.allclose(
            geodesic_distance(x, y), geodesic_distance(y, x), atol=1e-6
        )
        assert (geodesic_distance(x, z) <= geodesic_distance(x, y) + geodesic_distance(y, z) + 1e-5).all()


class TestFromCosine:
    @pytest.mark.parametrize(
        ("function", "reference"),
        [(arccos, torch.acos), (arcsin, torch.asin), (sine, lambda c: torch.sin(torch.acos(c)))],
    )
    def test_value_and_gradients(self, function, reference):
        cos = torch.linspace(-0.999, 0.999, 41, dtype=torch.float64, requires_grad=True)
        assert torch.allclose(function(cos), reference(cos), atol=1e-12)
        assert torch.autograd.gradcheck(function, cos)
        assert torch.autograd.gradgradcheck(function, cos)

    @pytest.mark.parametrize("function", [arccos, arcsin, sine])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_slope_is_bounded_at_the_poles(self, function, dtype):
        cos = torch.tensor([-1.0, 1.0], dtype=dtype, requires_grad=True)
        function(cos).sum().backward()
        assert cos.grad.abs().max() <= 1.01 / math.sqrt(torch.finfo(dtype).eps)
        assert cos.grad.abs().min() > 0

    @pytest.mark.parametrize("function", [arccos, arcsin, sine])
    def test_a_cosine_rounded_beyond_one_is_one(self, function):
        beyond = torch.tensor([1.0000001, -1.0000001])
        assert torch.equal(function(beyond), function(beyond.clamp(-1, 1)))
