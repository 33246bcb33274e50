import pytest
import torch

from hypersphere.orthogonal import Banded, Hessenberg, Skew, Symmetric, SymmetricPositive, Triangular, overparameterize
from tests.orthogonal.contracts import MethodContract


class TestSymmetricPositive(MethodContract):
    method = SymmetricPositive()

    def test_is_symmetric_and_positive_definite(self):
        r = self.method(torch.randn(5, 4, 4))
        assert torch.allclose(r, r.mT)
        assert (torch.linalg.eigvalsh(r) > 0).all()

    def test_no_neuron_rotates_by_more_than_a_right_angle(self):
        v = torch.randn(100, 6)
        assert ((v @ self.method(torch.randn(6, 6)).mT) * v).sum(1).min() > 0

    def test_is_the_cholesky_product(self):
        raw = torch.randn(5, 5)
        lower = torch.linalg.cholesky(self.method(raw).double())
        assert torch.allclose(lower.tril(-1).float(), raw.tril(-1), atol=1e-4)
        assert torch.allclose(lower.diagonal().log().float(), raw.diagonal(), atol=1e-4)


class TestLower(MethodContract):
    method = Triangular()

    def test_is_the_triangle(self):
        x = torch.randn(3, 4, 4)
        assert torch.equal(self.method(x), x.tril())


def test_the_upper_triangle():
    x = torch.randn(3, 4, 4)
    assert torch.equal(Triangular(upper=True)(x), x.triu())
    assert repr(Triangular(upper=True)) == "Triangular(upper=True)"


class TestBanded(MethodContract):
    method = Banded(2)

    def test_is_the_band(self):
        x = torch.randn(7, 7)
        i = torch.arange(7)
        assert torch.equal(self.method(x), torch.where((i[:, None] - i).abs() <= 2, x, 0))
        assert repr(self.method) == "Banded(width=2)"

    def test_refuses(self):
        with pytest.raises(ValueError, match="width must be an integer ≥ 0, got -1"):
            Banded(-1)


class TestSymmetric(MethodContract):
    method = Symmetric()

    def test_is_symmetric(self):
        x = torch.randn(3, 4, 4)
        assert torch.equal(self.method(x), self.method(x).mT)
        assert torch.equal(self.method(self.method(x)), self.method(x))


class TestHessenberg(MethodContract):
    method = Hessenberg()

    def test_is_zero_beyond_one_diagonal(self):
        x, i = torch.randn(6, 6), torch.arange(6)
        assert torch.equal(self.method(x), torch.where(i[:, None] - i <= 1, x, 0))
        assert torch.equal(Hessenberg(upper=False)(x), torch.where(i - i[:, None] <= 1, x, 0))
        assert repr(self.method) == "Hessenberg(upper=True)"


class TestSkew:
    def test_rotates_every_neuron_by_a_right_angle(self):
        v, r = torch.randn(50, 6), Skew()(torch.randn(6, 6))
        assert torch.equal(r, -r.mT)
        assert ((v @ r.mT) * v).sum(1).abs().max() < 1e-5

    def test_the_usual_start_keeps_lengths_on_average(self):
        layer = torch.nn.Linear(256, 64)
        before = layer.weight.norm().item()
        assert overparameterize(layer, Skew()).weight.norm().item() == pytest.approx(before, rel=0.05)

    def test_the_identity_is_out_of_reach(self):
        with pytest.raises(ValueError, match="gives the identity neither at I nor at 0"):
            overparameterize(torch.nn.Linear(4, 4), Skew(), start="identity")


@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize(
    "map",
    [
        SymmetricPositive(),
        Triangular(),
        Triangular(upper=True),
        Banded(0),
        Banded(1),
        Banded(9),
        Symmetric(),
        Skew(),
        Hessenberg(),
    ],
)
def test_the_freedom_is_the_rank_of_the_jacobian(map, n):
    jacobian = torch.autograd.functional.jacobian(map, torch.randn(n, n)).reshape(n * n, n * n)
    assert map.freedom(n) == torch.linalg.matrix_rank(jacobian)
