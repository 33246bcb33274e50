import torch

from hypersphere.orthogonal import TuningMethod
from hypersphere.orthogonal.finetuning.reflection_rotation import ReflectionRotation
from tests.orthogonal.finetuning.contracts import RotationContract


class TestHRA(RotationContract):
    method = TuningMethod("hra", rank=4)

    def test_second_derivatives_are_refused(self):
        """Override the inherited test: autograd computes the gradient here, so second derivatives are correct."""
        turn = (
            self.shake(self.tune(torch.nn.Linear(6, 40, dtype=torch.float64))).parametrizations.weight[0].change.inputs
        )
        raw, rows = turn.raw.detach().clone().requires_grad_(), torch.randn(1, 2, 6, dtype=torch.float64)

        def forward(raw):
            return torch.func.functional_call(turn, {"raw": raw}, (rows,))

        assert torch.autograd.gradgradcheck(forward, (raw,))


def test_is_the_product_of_reflections():
    turn = ReflectionRotation(TuningMethod("hra", rank=6), 2, 7, torch.empty(0, dtype=torch.float64))
    turn.raw.data.normal_()
    for r, columns in zip(turn.matrix(), turn.raw.detach(), strict=True):
        product = torch.eye(7, dtype=torch.float64)
        for u in columns.T:
            product = product @ (torch.eye(7, dtype=torch.float64) - 2 * torch.outer(u, u) / (u @ u))
        assert torch.allclose(r, product, atol=1e-12)


def test_starts_in_equal_pairs_of_the_size_of_a_new_layer():
    turn = ReflectionRotation(TuningMethod("hra"), 1, 400, torch.empty(0), torch.Generator().manual_seed(0))
    assert torch.equal(turn.raw[..., 0::2], turn.raw[..., 1::2])
    assert 0.9 / 20 < turn.raw.abs().max() <= 1 / 20
    assert turn.freedom == 8 * 399
