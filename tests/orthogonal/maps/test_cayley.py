import math

import numpy as np
import pytest
import torch

from hypersphere.orthogonal import Cayley, cayley, overparameterize
from tests.orthogonal.contracts import OrthogonalContract
from tests.orthogonal.maps.contracts import SINGULAR, HandWrittenBackward, MapContract, deviation


class TestCayley(HandWrittenBackward, MapContract):
    function = staticmethod(cayley)
    # for ‖A‖ near 1/ε the I in I − A is lost to rounding; the supported size is tested below
    starts = tuple(name for name in SINGULAR if name != "huge")

    def reference(self, x):
        a = ((x - x.T) / 2).numpy()
        eye = np.eye(len(a))
        return (eye + a) @ np.linalg.inv(eye - a)

    def test_is_a_rotation(self):
        assert torch.allclose(torch.linalg.det(cayley(self.matrices(10, 7, 7))), torch.ones(10, dtype=torch.float64))

    @pytest.mark.parametrize("n", [5, 64, 65])
    @pytest.mark.parametrize("norm", [1e-3, 1.0, 10.0, 100.0])
    def test_stays_orthogonal_up_to_a_large_norm(self, n, norm):
        x = self.matrices(n, n, dtype=torch.float32)
        x = norm * x / torch.linalg.matrix_norm((x - x.T) / 2, 2)
        assert deviation(cayley(x)) <= 1e-5

    def test_depends_on_the_skew_part_only(self):
        x = self.matrices(5, 5)
        assert torch.allclose(cayley(x + x.T + torch.eye(5)), torch.eye(5, dtype=torch.float64))
        assert torch.allclose(cayley((x - x.T) / 2), cayley(x))

    @pytest.mark.parametrize("terms", [2, 4, 8])
    def test_the_series_and_its_error(self, terms):
        x = self.matrices(6, 6)
        a = (x - x.T) / 2
        a = 0.3 * a / torch.linalg.matrix_norm(a, 2)
        series = sum(torch.linalg.matrix_power(a, k) for k in range(terms + 1))
        r = cayley(a, terms=terms)
        assert torch.allclose(r, (torch.eye(6) + a) @ series)
        assert torch.linalg.matrix_norm(r - cayley(a), 2) <= 0.3 ** (terms + 1) * 1.001
        # with an even number of terms, the error of RᵀR is the square of the error of R
        assert deviation(r) <= 0.3 ** (2 * terms + 2) * 1.001

    def test_the_series_gradcheck(self):
        assert torch.autograd.gradcheck(lambda x: cayley(x, terms=4), (0.1 * self.matrices(4, 4)).requires_grad_())

    @pytest.mark.parametrize("terms", [0, 1, 3, -2])
    def test_refuses(self, terms):
        with pytest.raises(ValueError, match="terms must be an even integer ≥ 2"):
            cayley(torch.zeros(2, 2), terms=terms)


class TestThin(HandWrittenBackward):
    """The product R·V, computed without forming R."""

    def function(self, x):
        return Cayley().act(x, torch.eye(len(x))[:-1])

    @pytest.mark.parametrize("shape", [(1, 6), (3, 6), (5, 6), (6, 6), (9, 6)])
    def test_is_the_product_with_r(self, shape):
        x, rows = torch.randn(6, 6, dtype=torch.float64), torch.randn(shape, dtype=torch.float64)
        assert torch.allclose(Cayley().act(x, rows), rows @ cayley(x).T, atol=1e-12)

    def test_gradcheck_in_batches(self):
        x = torch.randn(2, 5, 5, dtype=torch.float64, requires_grad=True)
        rows = torch.randn(2, 3, 5, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(Cayley().act, (x, rows))

    def test_lengths_survive_large_inputs(self):
        x, rows = 100 * torch.randn(64, 64), torch.randn(8, 64)
        assert torch.allclose(Cayley().act(x, rows).norm(dim=1), rows.norm(dim=1), rtol=1e-5)

    def test_the_series_is_used_when_asked_for(self):
        layer = overparameterize(torch.nn.Linear(8, 3), Cayley(terms=2))
        raw = layer.parametrizations.weight[0].rotation.raw
        torch.nn.init.normal_(raw, std=0.1)
        expected = layer.parametrizations.weight.original @ cayley(raw, terms=2).T
        assert torch.allclose(layer.weight, expected, atol=1e-6)
        assert "terms=2" in repr(layer)


class TestMethod(OrthogonalContract):
    method = "cayley"

    def test_starts_at_the_identity(self):
        layer = torch.nn.Linear(7, 3)
        before = layer.weight.detach().clone()
        assert torch.equal(overparameterize(layer).weight, before)

    def test_a_rotation_by_a_known_angle(self):
        layer = overparameterize(torch.nn.Linear(2, 1, bias=False))
        with torch.no_grad():
            layer.parametrizations.weight.original.copy_(torch.tensor([[1.0, 0.0]]))
            t = math.tan(math.pi / 12)  # Cayley's angle is 2·arctan
            layer.parametrizations.weight[0].rotation.raw.copy_(torch.tensor([[0.0, -t], [t, 0.0]]))
        assert torch.allclose(layer.weight, torch.tensor([[math.cos(math.pi / 6), math.sin(math.pi / 6)]]))
