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

    def test_is_a_rotation(self):
        assert torch.allclose(
            torch.linalg.det(exponential(self.matrices(10, 7, 7))), torch.ones(10, dtype=torch.float64)
        )


class TestMethod(OrthogonalContract):
    method = "exponential"
