import pytest
import torch

from hypersphere.energy import SRIP, Orthogonality, Orthonormality, srip
from hypersphere.geometry import orthogonality, orthonormality
from tests.energy.contracts import RegularizerContract


class TestOrthonormality(RegularizerContract):
    def make(self, model):
        return Orthonormality(model, 0.5)

    def test_is_the_sum_over_the_hidden_layers(self):
        net = self.net()
        assert Orthonormality(net, 0.5)().item() == pytest.approx(
            0.5 * (orthonormality(net[0].weight.flatten(1)) + orthonormality(net[4].weight)).item(), rel=1e-6
        )


class TestOrthogonality(RegularizerContract):
    def make(self, model):
        return Orthogonality(model, output=0.1)

    def test_is_the_measure(self):
        net = self.net()
        assert torch.equal(Orthogonality(net).per_layer()["4"], orthogonality(net[4].weight))


class TestSRIP(RegularizerContract):
    def make(self, model):
        return SRIP(model, iterations=200)

    def test_refuses(self):
        with pytest.raises(ValueError, match="iterations must be"):
            SRIP(self.net(), iterations=0)


def test_is_the_spectral_norm():
    for shape in ((6, 9), (9, 6), (4, 2, 3)):
        w = torch.randn(shape, dtype=torch.float64)
        rows = w.flatten(1)
        exact = torch.linalg.matrix_norm(rows @ rows.T - torch.eye(len(rows), dtype=torch.float64), 2)
        assert srip(w, iterations=300).item() == pytest.approx(exact.item(), rel=1e-6)
        assert srip(w, iterations=1) <= exact


def test_its_gradient_is_that_of_the_spectral_norm():
    w = torch.randn(5, 8, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(srip(w, iterations=500), w)
    (exact,) = torch.autograd.grad(torch.linalg.matrix_norm(w @ w.T - torch.eye(5, dtype=torch.float64), 2), w)
    assert torch.allclose(gradient, exact, atol=1e-6)


def test_is_zero_with_a_finite_gradient_for_orthonormal_neurons():
    w = torch.eye(4, 6).requires_grad_()
    value = srip(w)
    value.backward()
    assert value == 0
    assert (w.grad == 0).all()


def test_refuses():
    with pytest.raises(ValueError, match="iterations must be"):
        srip(torch.eye(3), iterations=0)
