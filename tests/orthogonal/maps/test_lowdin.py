import pytest
import scipy.linalg
import torch
from hypothesis import given
from hypothesis import strategies as st

from hypersphere.orthogonal import lowdin
from tests.orthogonal.contracts import OrthogonalContract
from tests.orthogonal.maps.contracts import HandWrittenBackward, MapContract, deviation


class TestLowdin(HandWrittenBackward, MapContract):
    function = staticmethod(lowdin)

    def reference(self, x):
        return scipy.linalg.polar(x.numpy())[0]

    def test_is_u_times_the_inverse_root_of_the_gram_matrix(self):
        x = self.matrices(6, 6)
        root = torch.from_numpy(scipy.linalg.inv(scipy.linalg.sqrtm((x.T @ x).numpy())).real)
        assert torch.allclose(lowdin(x), x @ root)

    @given(st.integers(0, 10**6))
    def test_is_the_nearest_orthogonal_matrix(self, seed):
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(5, 5, dtype=torch.float64, generator=generator)
        other = torch.linalg.qr(torch.randn(5, 5, dtype=torch.float64, generator=generator))[0]
        near = torch.linalg.matrix_exp(0.05 * (x - x.T)) @ lowdin(x)
        assert (lowdin(x) - x).norm() <= (other - x).norm()
        assert (lowdin(x) - x).norm() <= (near - x).norm()

    def test_gradients_at_repeated_singular_values_are_right(self):
        q = torch.linalg.qr(self.matrices(5, 5))[0]
        for x in (q, 3 * torch.eye(5, dtype=torch.float64), q @ torch.diag(torch.tensor([2.0, 2, 2, 1, 1]).double())):
            assert torch.autograd.gradcheck(lowdin, x.clone().requires_grad_())


class TestMethod(OrthogonalContract):
    method = "lowdin"


def test_single_precision_that_does_not_converge_is_done_in_double(monkeypatch):
    """LAPACK can fail to converge in float32 if singular values are clustered, as in training from the identity."""
    svd, x = torch.linalg.svd, torch.eye(4) + 0.01 * torch.randn(4, 4, generator=torch.Generator().manual_seed(0))
    expected = lowdin(x)

    def gives_up(matrix):
        if matrix.dtype == torch.float32:
            raise torch.linalg.LinAlgError("linalg.svd: The algorithm failed to converge")
        return svd(matrix)

    monkeypatch.setattr(torch.linalg, "svd", gives_up)
    found = lowdin(x)
    assert found.dtype == torch.float32
    assert torch.allclose(found, expected, atol=1e-6)
    monkeypatch.setattr(torch.linalg, "svd", lambda matrix: gives_up(matrix.float()))
    with pytest.raises(torch.linalg.LinAlgError):
        lowdin(x.double())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("bad", "counts"), [(torch.nan, "1 NaN and 0 infinite"), (torch.inf, "0 NaN and 1 infinite")])
def test_refuses_what_is_not_finite(bad, counts, dtype):
    x = torch.eye(4, dtype=dtype)
    x[0, 1] = bad
    with pytest.raises(ValueError, match=f"x must hold finite numbers, got {counts} of 16 entries"):
        lowdin(x)


def test_large_finite_inputs_give_an_orthogonal_matrix():
    assert deviation(lowdin(1e30 * torch.randn(16, 16))) <= 1e-5
