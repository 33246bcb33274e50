import pytest
import torch

from hypersphere.orthogonal import TuningMethod
from hypersphere.orthogonal.finetuning.block_rotation import skew_cayley
from hypersphere.orthogonal.finetuning.butterfly_rotation import ButterflyRotation
from tests.orthogonal.finetuning.contracts import RotationContract


class TestBOFT(RotationContract):
    method = TuningMethod("boft", 4, factors=2)


def turn(n, block, factors):
    method = TuningMethod("boft", block, factors=factors)
    result = ButterflyRotation(method, 1, n, torch.empty(0, dtype=torch.float64))
    result.raw.data.normal_(std=0.5)
    return result


@pytest.mark.parametrize("factors", [1, 2, 3, 4])
def test_every_factor_doubles_what_a_number_depends_on(factors):
    depends = turn(32, 4, factors).matrix()[0].abs() > 1e-12
    assert (depends.sum(1) == 2 * 2**factors).all()  # 2^m half blocks of two numbers


def test_all_factors_together_mix_everything():
    assert (turn(32, 4, 4).matrix().abs() > 1e-12).all()


def test_is_the_product_of_its_factors():
    """Each factor by two loops over the pairs of half blocks that are 2^i apart."""
    butterfly = turn(16, 4, 3)
    product = torch.eye(16, dtype=torch.float64)
    for i, blocks in enumerate(skew_cayley(butterfly.raw.detach(), 4)[:, 0]):
        factor, pairs = (
            torch.zeros(16, 16, dtype=torch.float64),
            [(h, h ^ (1 << i)) for h in range(8) if not h >> i & 1],
        )
        for (first, second), block in zip(pairs, blocks, strict=True):
            at = torch.tensor([2 * first, 2 * first + 1, 2 * second, 2 * second + 1])
            factor[at[:, None], at] = block
        product = factor @ product
    assert torch.allclose(butterfly.matrix()[0], product, atol=1e-12)
