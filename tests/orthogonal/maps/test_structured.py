import pytest
import torch

from hypersphere.orthogonal import Banded, SymmetricPositive, Triangular
from tests.orthogonal.contracts import MethodContract


class TestSymmetricPositive(MethodContract):
    method = SymmetricPositive()

    def test_is_symmetric_and_positive_definite(self):
        r = self.method(torch.randn(5, 4, 4))
        assert torch.allclose(r, r.mT)
        assert (torch.linalg.eigvalsh(r) > 0).all()

    def test_no_neuron_turns_by_more_than_a_right_angle(self):
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


@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize(
    "map", [SymmetricPositive(), Triangular(), Triangular(upper=True), Banded(0), Banded(1), Banded(9)]
)
def test_the_freedom_is_the_rank_of_the_jacobian(map, n):
    jacobian = torch.autograd.functional.jacobian(map, torch.randn(n, n)).reshape(n * n, n * n)
    assert map.freedom(n) == torch.linalg.matrix_rank(jacobian)
