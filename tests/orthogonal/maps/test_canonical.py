import torch

from hypersphere.orthogonal import canonical, lowdin
from tests.orthogonal.contracts import OrthogonalContract
from tests.orthogonal.maps.contracts import HandWrittenBackward, MapContract


def by_eigenvectors(x):
    """F.11 as printed: X V d^{−1/2}, eigenvalues of XᵀX in descending order, the largest entry of each v positive."""
    d, v = torch.linalg.eigh(x.T @ x)
    d, v = d.flip(0), v.flip(1)
    v = v * torch.sign(v[v.abs().argmax(0), torch.arange(len(d))])
    return x @ v @ torch.diag(d**-0.5)


class TestCanonical(HandWrittenBackward, MapContract):
    function = staticmethod(canonical)
    reference = staticmethod(by_eigenvectors)

    def test_the_first_axis_is_the_longest(self):
        x = self.matrices(5, 5)
        lengths = (canonical(x).T @ x).norm(dim=1)
        assert torch.allclose(lengths, torch.linalg.svdvals(x))

    def test_differs_from_lowdin_by_the_eigenvectors_of_the_gram_matrix(self):
        x = self.matrices(5, 5)
        v = canonical(x).T @ lowdin(x)  # Λ = R V, so RᵀΛ diagonalizes XᵀX
        gram = v @ x.T @ x @ v.T
        assert torch.allclose(gram, torch.diag(gram.diagonal()), atol=1e-10)

    def test_the_gradient_inside_a_repeated_singular_value_is_zero(self):
        x = (3 * torch.eye(4)).requires_grad_()
        (canonical(x) * torch.randn(4, 4)).sum().backward()
        assert torch.equal(x.grad, torch.zeros(4, 4))


class TestMethod(OrthogonalContract):
    method = "canonical"
