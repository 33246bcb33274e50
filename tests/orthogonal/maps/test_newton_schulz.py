import pytest
import scipy.linalg
import torch

from hypersphere.orthogonal import lowdin, newton_schulz, overparameterize
from hypersphere.orthogonal.maps.newton_schulz import polish
from tests.orthogonal.maps.contracts import HandWrittenBackward, MapContract, deviation


class TestNewtonSchulz(HandWrittenBackward, MapContract):
    function = staticmethod(newton_schulz)
    starts = (
        "identity",
        "negative identity",
        "huge",
    )  # matrix products cannot complete a singular matrix

    def reference(self, x):
        return scipy.linalg.polar(x.numpy())[0]

    def matrices(self, *shape, dtype=torch.float64):
        return super().matrices(*shape, dtype=dtype) / shape[-1] ** 0.5 + 2 * torch.eye(shape[-1], dtype=dtype)

    def test_the_length_does_not_matter(self):
        x = self.matrices(6, 6, dtype=torch.float32)
        assert all(torch.allclose(newton_schulz(scale * x), newton_schulz(x), atol=1e-6) for scale in (1e-30, 1e30))

    def test_a_missing_direction_stays_missing(self):
        r = newton_schulz(torch.diag(torch.tensor([2.0, 1.0, 0.0])))
        assert torch.allclose(r, torch.diag(torch.tensor([1.0, 1.0, 0.0])), atol=1e-6)
        assert torch.equal(newton_schulz(torch.zeros(2, 2)), torch.zeros(2, 2))

    def test_the_gradient_is_that_of_the_polar_factor(self):
        x = self.matrices(6, 6).requires_grad_()
        g = torch.randn(6, 6, dtype=torch.float64)
        ours, exact = (torch.autograd.grad((f(x) * g).sum(), x)[0] for f in (newton_schulz, lowdin))
        assert torch.allclose(ours, exact, atol=1e-9)

    def test_more_steps_are_closer(self):
        x = torch.randn(16, 16, dtype=torch.float64)
        errors = [deviation(newton_schulz(x, steps)) for steps in (3, 10, 20, 30)]
        assert errors == sorted(errors, reverse=True)

    def test_the_default_bears_large_condition_numbers(self):
        u, v = (torch.linalg.qr(torch.randn(12, 12, dtype=torch.float64))[0] for _ in range(2))
        x = u @ torch.diag(torch.logspace(0, -7, 12, dtype=torch.float64)) @ v
        assert deviation(newton_schulz(x)) <= 1e-10
        assert torch.allclose(newton_schulz(x), lowdin(x), atol=1e-7)  # ε · condition number = 1e-9

    def test_agrees_with_the_cubic_step_alone(self):
        x = torch.randn(3, 9, 9, dtype=torch.float64)
        assert torch.allclose(newton_schulz(x), polish(x / torch.linalg.matrix_norm(x, keepdim=True), 60), atol=1e-10)

    def test_a_singular_start_has_a_finite_gradient(self):
        for x in (torch.zeros(3, 3), torch.diag(torch.tensor([2.0, 1.0, 0.0]))):
            leaf = x.clone().requires_grad_()
            newton_schulz(leaf).backward(torch.randn(3, 3))
            assert torch.isfinite(leaf.grad).all()

    @pytest.mark.untyped
    def test_compiles(self):
        x = self.matrices(6, 6, dtype=torch.float32).requires_grad_()
        g = torch.randn(6, 6)
        compiled = torch.compile(newton_schulz, backend="aot_eager", fullgraph=True)
        ours, plain = (torch.autograd.grad((f(x) * g).sum(), x)[0] for f in (compiled, newton_schulz))
        assert torch.allclose(compiled(x), newton_schulz(x), atol=1e-6)
        assert torch.allclose(ours, plain, atol=1e-5)

    def test_refuses(self):
        with pytest.raises(ValueError, match="steps must be an integer ≥ 1, got 0"):
            newton_schulz(torch.eye(2), 0)

    def test_two_steps_restore_a_nearly_orthogonal_matrix(self):
        q = lowdin(torch.randn(32, 32)) + 1e-3 * torch.randn(32, 32)
        assert deviation(q) > 1e-3
        assert deviation(polish(q, 2)) <= 2e-6

    def test_is_accepted_like_any_map(self):
        layer = torch.nn.Linear(6, 2)
        before = layer.weight.detach().clone()
        assert torch.allclose(overparameterize(layer, newton_schulz).weight, before, atol=1e-6)
