"""Contract tests of maps to orthogonal matrices."""

import pytest
import torch


def deviation(r):
    """The largest entry of |RᵀR − I|, in float64."""
    r = r.detach().double()
    return (r.mT @ r - torch.eye(r.shape[-1], dtype=r.dtype)).abs().max().item()


SINGULAR = {
    "zero": torch.zeros(5, 5),
    "ones": torch.ones(5, 5),
    "rank one": torch.outer(torch.arange(1.0, 6.0), torch.ones(5)),
    "duplicate rows": torch.randn(5, 5, generator=torch.Generator().manual_seed(1))[[0, 1, 1, 2, 3]],
    "duplicate columns": torch.randn(5, 5, generator=torch.Generator().manual_seed(2))[:, [0, 0, 1, 1, 2]],
    "zero column": torch.randn(5, 5, generator=torch.Generator().manual_seed(3))
    * torch.tensor([1.0, 0.0, 1.0, 1.0, 0.0]),
    "identity": torch.eye(5),
    "negative identity": -torch.eye(5),
    "tiny": 1e-30 * torch.randn(5, 5, generator=torch.Generator().manual_seed(4)),
    "huge": 1e12 * torch.randn(5, 5, generator=torch.Generator().manual_seed(5)),
}


class MapContract:
    """A pure function from square matrices to orthogonal matrices."""

    starts = tuple(SINGULAR)

    def function(self, x):
        raise AssertionError("the contract's class must give the function")

    def reference(self, x):
        """Compute the map of one float64 matrix by an independent method."""
        raise AssertionError("the contract's class must give the reference")

    def matrices(self, *shape, dtype=torch.float64):
        return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(7))

    @pytest.mark.parametrize("n", [1, 2, 3, 6, 17])
    def test_agrees_with_the_reference(self, n):
        x = self.matrices(n, n)
        assert torch.allclose(self.function(x), torch.as_tensor(self.reference(x)), atol=1e-9)

    @pytest.mark.parametrize("n", [1, 2, 33, 96])
    def test_is_orthogonal_in_float32(self, n):
        assert deviation(self.function(self.matrices(n, n, dtype=torch.float32))) <= 5e-6

    def test_gradcheck(self):
        assert torch.autograd.gradcheck(self.function, self.matrices(2, 4, 4).requires_grad_())

    def test_a_batch_is_its_matrices(self):
        x = self.matrices(2, 3, 4, 4)
        batch = self.function(x)
        assert batch.shape == x.shape
        for i in range(2):
            for j in range(3):
                assert torch.allclose(batch[i, j], self.function(x[i, j]), atol=1e-12)

    def test_leaves_its_input_alone(self):
        x = self.matrices(4, 4)
        before = x.clone()
        self.function(x)
        assert torch.equal(x, before)

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
    def test_half_precision_is_computed_in_float32(self, dtype):
        x = self.matrices(8, 8, dtype=torch.float32).to(dtype).requires_grad_()
        r = self.function(x)
        assert r.dtype == dtype
        assert torch.equal(r, self.function(x.float()).to(dtype))
        r.float().square().sum().backward()
        assert torch.isfinite(x.grad).all()

    def test_autocast_changes_nothing(self):
        x = self.matrices(16, 16, dtype=torch.float32).requires_grad_()
        g = torch.randn(16, 16)
        plain = torch.autograd.grad((self.function(x) * g).sum(), x)[0]
        with torch.autocast("cpu", dtype=torch.bfloat16):
            r = self.function(x)
        assert torch.equal(r, self.function(x))
        assert torch.equal(torch.autograd.grad((r * g).sum(), x)[0], plain)

    def test_a_valid_rotation_with_finite_gradients_from_hard_starts(self):
        for name in self.starts:
            x = SINGULAR[name].clone().requires_grad_()
            r = self.function(x)
            assert deviation(r) <= 5e-6, name
            (gradient,) = torch.autograd.grad((r * torch.randn(5, 5)).sum(), x)
            assert torch.isfinite(gradient).all(), name
            assert gradient.abs().max() < 1e7, name

    @pytest.mark.untyped
    @pytest.mark.parametrize(
        "wrong", [torch.zeros(2, 3), torch.zeros(3), torch.zeros(0, 0), torch.zeros(2, 2, dtype=torch.long)]
    )
    def test_refuses_what_is_not_square(self, wrong):
        with pytest.raises(ValueError, match="square matrices"):
            self.function(wrong)


class HandWrittenBackward:
    """A map with a handwritten backward pass."""

    def test_the_gradient_ignores_autocast(self):
        x = torch.randn(16, 16, requires_grad=True)
        g = torch.randn(self.function(x).shape)
        (plain,) = torch.autograd.grad((self.function(x) * g).sum(), x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            (inside,) = torch.autograd.grad((self.function(x) * g).sum(), x)
        assert torch.equal(inside, plain)

    def test_the_gradient_is_not_differentiated_silently(self):
        x = torch.randn(4, 4, requires_grad=True)
        with pytest.raises(RuntimeError, match="cannot be differentiated again"):
            torch.autograd.grad(self.function(x).square().sum(), x, create_graph=True)
