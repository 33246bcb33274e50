import torch

from hypersphere.orthogonal import gram_schmidt, householder
from tests.orthogonal.contracts import OrthogonalContract
from tests.orthogonal.maps.contracts import SINGULAR, HandWrittenBackward, MapContract, deviation


def algorithm_3(u):
    """The algorithm as printed in F.1.2, with every reflector as a dense matrix; σ = 0 needs none."""
    u, n = u.clone(), u.shape[0]
    q = torch.eye(n, dtype=u.dtype)
    for j in range(n - 1):
        v, beta = _householder(u[j:, j])
        h = torch.eye(n, dtype=u.dtype)
        h[j:, j:] -= beta * torch.outer(v, v)
        u, q = h @ u, q @ h
    return q


def _householder(x):
    sigma = x[1:].square().sum()
    v = x.clone()
    if sigma == 0:
        return v, 0.0
    length = (x[0] ** 2 + sigma).sqrt()
    v[0] = x[0] - length if x[0] <= 0 else -sigma / (x[0] + length)
    return v / v[0], 2 * v[0] ** 2 / (sigma + v[0] ** 2)


class TestHouseholder(HandWrittenBackward, MapContract):
    function = staticmethod(householder)
    reference = staticmethod(algorithm_3)

    def test_columns_along_the_first_axis_are_left_alone(self):
        x = torch.block_diag(torch.eye(2), torch.randn(3, 3)).double()
        x[:, 3] += x[:, 0]
        assert torch.allclose(householder(x), algorithm_3(x))
        for n in (1, 2, 3, 4, 5):
            eye = torch.eye(n, dtype=torch.float64)
            assert torch.equal(householder(eye), eye)
            assert torch.allclose(householder(-eye), algorithm_3(-eye))
            assert torch.equal(householder(eye.flip(0)).abs(), eye.flip(0))

    def test_gradients_along_the_first_axis_are_finite(self):
        x = torch.diag(torch.tensor([2.0, 3.0, 1.0])).requires_grad_()
        (householder(x) * torch.randn(3, 3)).sum().backward()
        assert torch.isfinite(x.grad).all()

    def test_the_determinant_counts_the_reflections(self):
        for n in (2, 3, 6, 7):
            q = householder(self.matrices(4, n, n))
            assert torch.allclose(torch.linalg.det(q), torch.full((4,), (-1.0) ** (n - 1), dtype=torch.float64))


class TestLast(MapContract):
    """n reflections, as 7.3.3 counts them."""

    def function(self, x):
        return householder(x, last=True)

    def reference(self, x):
        q = algorithm_3(x)
        return torch.cat([q[:, :-1], q[:, -1:] * torch.sign(q[:, -1] @ x[:, -1])], 1)

    def test_is_gram_schmidt(self):
        x = self.matrices(3, 7, 7)
        assert torch.equal(self.function(x), gram_schmidt(x))

    def test_is_continuous_at_the_identity_where_n_minus_one_reflections_jump(self):
        eye, near = torch.eye(4), torch.eye(4) + 1e-5 * torch.randn(4, 4)
        assert (self.function(near) - self.function(eye)).abs().max() < 1e-4
        assert (householder(near) - householder(eye)).abs().max() > 1


def test_singular_batches():
    assert deviation(householder(torch.stack(list(SINGULAR.values())))) <= 5e-6


class TestMethod(OrthogonalContract):
    method = "householder"
