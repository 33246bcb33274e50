import pytest
import scipy.linalg
import torch

from hypersphere.orthogonal import exponential
from tests.orthogonal.contracts import OrthogonalContract
from tests.orthogonal.maps.contracts import MapContract, deviation


class TestExponential(MapContract):
    function = staticmethod(exponential)

    def reference(self, x):
        return scipy.linalg.expm(((x - x.T) / 2).numpy())

    @pytest.mark.parametrize("scale", [1e-8, 0.1, 1.0, 10.0, 100.0])
    def test_agrees_with_torch_at_every_scale(self, scale):
        x = scale * self.matrices(9, 9)
        x = x.requires_grad_()
        g = torch.randn(9, 9, dtype=torch.float64)
        ours, theirs = exponential(x), torch.linalg.matrix_exp((x - x.T) / 2)
        assert torch.allclose(ours, theirs, atol=1e-11)
        assert torch.allclose(*(torch.autograd.grad((r * g).sum(), x)[0] for r in (ours, theirs)), atol=1e-10)

    def test_stays_orthogonal_however_large_the_input(self):
        x = torch.randn(64, 64)
        assert all(deviation(exponential(scale * x)) <= 5e-6 for scale in (1e-3, 1.0, 1e2, 1e6))

    @pytest.mark.parametrize("scale", [1e20, 1e30, 1e37])
    def test_large_finite_inputs_give_a_finite_orthogonal_matrix(self, scale):
        x = (scale * torch.randn(3, 16, 16)).requires_grad_()
        r = exponential(x)
        assert deviation(r.detach()) <= 5e-6
        assert torch.isfinite(torch.autograd.grad(r.sum(), x)[0]).all()

    @pytest.mark.parametrize(
        ("bad", "counts"), [(torch.nan, "2 NaN and 0 infinite"), (torch.inf, "0 NaN and 2 infinite")]
    )
    def test_refuses_what_is_not_finite(self, bad, counts):
        x = torch.eye(4)
        x[0, 1] = bad
        with pytest.raises(ValueError, match=f"x must hold finite numbers .* with {counts} of 16 entries"):
            exponential(x)

    def test_is_a_rotation(self):
        assert torch.allclose(
            torch.linalg.det(exponential(self.matrices(10, 7, 7))), torch.ones(10, dtype=torch.float64)
        )


class TestMethod(OrthogonalContract):
    method = "exponential"
