import pytest
import scipy.linalg
import torch

from hypersphere.orthogonal import GramSchmidt, gram_schmidt, orthogonality_error, overparameterize
from tests.orthogonal.contracts import OrthogonalContract
from tests.orthogonal.maps.contracts import HandWrittenBackward, MapContract


def algorithm_1(u):
    """The process as printed in F.1, column by column."""
    n = u.shape[0]
    r = torch.zeros_like(u)
    for j in range(n):
        t = u[:, j] - r @ (r.T @ u[:, j])
        r[:, j] = t / t.norm()
    return r


class TestGramSchmidt(HandWrittenBackward, MapContract):
    function = staticmethod(gram_schmidt)
    reference = staticmethod(algorithm_1)

    def test_is_scipys_q_with_a_positive_diagonal(self):
        x = self.matrices(12, 12)
        q, r = scipy.linalg.qr(x.numpy())
        signs = (r.diagonal() > 0) * 2.0 - 1
        assert torch.allclose(gram_schmidt(x), torch.from_numpy(q * signs))
        assert ((gram_schmidt(x).T @ x).diagonal() > 0).all()

    def test_the_length_of_the_columns_does_not_matter(self):
        x = self.matrices(5, 5)
        assert torch.allclose(gram_schmidt(x * torch.tensor([1e-9, 1.0, 3.0, 1e9, 7.0])), gram_schmidt(x), atol=1e-6)

    def test_a_dependent_column_learns_its_way_out(self):
        x = torch.ones(4, 4, requires_grad=True)
        for _ in range(30):
            (gradient,) = torch.autograd.grad((gram_schmidt(x) - torch.eye(4)).square().sum(), x)
            x = (x - 0.1 * gradient).detach().requires_grad_()
        assert torch.linalg.matrix_rank(x) == 4

    def test_refuses(self):
        with pytest.raises(ValueError, match="iterations must be an integer ≥ 1, got 0"):
            gram_schmidt(torch.eye(2), iterations=0)


class TestModified(MapContract):
    reference = staticmethod(algorithm_1)

    def function(self, x):
        return gram_schmidt(x, modified=True)

    def matrices(self, *shape, dtype=torch.float64):
        # one pass loses digits in proportion to the condition number, so these matrices are well conditioned
        eye = torch.eye(shape[-1], dtype=dtype)
        return super().matrices(*shape, dtype=dtype) / shape[-1] ** 0.5 + 2 * eye


class TestIterated(MapContract):
    reference = staticmethod(algorithm_1)

    def function(self, x):
        return gram_schmidt(x, iterations=2)


def test_iterations_win_back_orthogonality_of_an_ill_conditioned_basis():
    hilbert = 1 / (torch.arange(8.0)[:, None] + torch.arange(8.0) + 1)
    errors = []
    for k in (1, 2):
        # modified and classic differ in the first pass only; both are the loops of F.1
        e = gram_schmidt(hilbert, modified=True, iterations=k)
        errors.append((e.T @ e - torch.eye(8)).abs().max().item())
    assert errors[0] > 1e-4
    assert errors[1] <= 1e-5


class TestMethod(OrthogonalContract):
    method = "gram_schmidt"


@pytest.mark.parametrize("map", [GramSchmidt(modified=True), GramSchmidt(iterations=2)])
def test_the_loops_as_methods(map):
    layer = overparameterize(torch.nn.Linear(6, 4), map)
    assert orthogonality_error(layer) <= 1e-5
    layer(torch.randn(3, 6)).square().sum().backward()
    assert layer.parametrizations.weight[0].rotation.raw.grad.abs().max() > 0
    assert f"modified={map.modified}, iterations={map.iterations}" in repr(layer)
