import pytest
import torch
from torch import nn

from hypersphere.orthogonal import TuningMethod, cayley, finetune
from hypersphere.orthogonal.finetuning.block_rotation import BlockRotation, rotate_blocks, skew_cayley
from tests.orthogonal.finetuning.contracts import RotationContract, shake


class TestOFT(RotationContract):
    method = TuningMethod("oft", 4)


class TestOFTNeumann(RotationContract):
    """For small matrices, a long Neumann series equals the Cayley transform up to rounding."""

    method = TuningMethod("oft", 4, terms=60)
    size = 0.1


class TestCOFT(RotationContract):
    method = TuningMethod("coft", 4, eps=0.05)

    @pytest.mark.parametrize("eps", [6e-5, 0.1, 2.0])
    def test_r_stays_near_the_identity(self, eps):
        layer = shake(finetune(nn.Linear(16, 40, dtype=torch.float64), "coft", block=4, eps=eps), 5)
        r = layer.parametrizations.weight[0].change.inputs.matrix()[0]
        distance = torch.linalg.matrix_norm(r - torch.eye(16, dtype=torch.float64))
        assert 0.5 * eps < distance <= eps * (1 + 1e-9)

    def test_coft_within_its_bound_is_oft(self):
        methods = TuningMethod("oft", 4), TuningMethod("coft", 4, eps=10.0)
        free, bound = (BlockRotation(method, 1, 8, torch.empty(0).double()) for method in methods)
        free.raw.data.normal_(std=0.1)
        bound.load_state_dict(free.state_dict())
        assert torch.equal(free.blocks(), bound.blocks())


@pytest.mark.parametrize("terms", [None, 60])
def test_skew_cayley_is_the_cayley_transform_of_the_upper_entries(terms):
    raw = 0.1 * torch.randn(2, 3, 10, dtype=torch.float64)  # the series converges for ‖A‖ < 1
    x = torch.zeros(2, 3, 5, 5, dtype=torch.float64)
    i, j = torch.triu_indices(5, 5, 1)
    x[..., i, j] = raw
    assert torch.allclose(skew_cayley(raw, 5, terms), cayley(x - x.mT), atol=1e-12)


def test_skew_cayley_gradient():
    raw = torch.randn(3, 6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda r: skew_cayley(r, 4), (raw,))


def test_rotating_blocks_is_a_block_diagonal_product():
    rows, r = torch.randn(2, 5, 12, dtype=torch.float64), torch.randn(2, 3, 4, 4, dtype=torch.float64)
    expected = torch.stack([x @ torch.block_diag(*m) for x, m in zip(rows, r, strict=True)])
    assert torch.allclose(rotate_blocks(rows, r), expected)
    assert torch.autograd.gradcheck(rotate_blocks, (rows.requires_grad_(), r.requires_grad_()))


def test_only_the_skew_part_is_learned():
    layer = finetune(nn.Linear(768, 768), block=32)
    assert sum(p.numel() for p in layer.parameters() if p.requires_grad) == 24 * 32 * 31 // 2
