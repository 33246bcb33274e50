import torch

from hypersphere.orthogonal.tuning.reflections import ReflectionTurn
from tests.orthogonal.tuning.contracts import TuningContract


class TestHRA(TuningContract):
    options = {"method": "hra", "rank": 4}


def test_is_the_product_of_reflections():
    turn = ReflectionTurn(2, 7, 6, torch.empty(0, dtype=torch.float64))
    turn.raw.data.normal_()
    for r, columns in zip(turn.matrix(), turn.raw.detach(), strict=True):
        product = torch.eye(7, dtype=torch.float64)
        for u in columns.T:
            product = product @ (torch.eye(7, dtype=torch.float64) - 2 * torch.outer(u, u) / (u @ u))
        assert torch.allclose(r, product, atol=1e-12)


def test_starts_in_equal_pairs_of_the_size_of_a_new_layer():
    turn = ReflectionTurn(1, 400, 8, torch.empty(0), torch.Generator().manual_seed(0))
    assert torch.equal(turn.raw[..., 0::2], turn.raw[..., 1::2])
    assert 0.9 / 20 < turn.raw.abs().max() <= 1 / 20
    assert turn.freedom == 8 * 399
