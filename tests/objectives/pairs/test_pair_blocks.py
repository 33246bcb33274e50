import pytest
import torch

from hypersphere.objectives.pairs.pair_blocks import (
    MAX_KEPT_COSINES,
    check_chunk,
    choose_block_rows,
    distance,
    log_sum_exp,
    sum_over_pairs,
)

CPU = torch.device("cpu")


def test_the_size_of_a_block():
    assert choose_block_rows("auto", 1000, 1000, CPU) == 1000
    assert choose_block_rows(None, 10**6, 10**6, CPU) == 10**6
    assert choose_block_rows(7, 10, 10, CPU) == 7
    assert choose_block_rows("auto", 32768, 32768, CPU) == 256
    assert choose_block_rows("auto", 8, 10**9, CPU) == 1
    large = choose_block_rows("auto", MAX_KEPT_COSINES, 2, CPU)
    assert 256 < large < MAX_KEPT_COSINES


def test_blocks_hold_no_more_than_one_at_a_time():
    """The backward pass recomputes the cosines block by block."""
    seen = []

    def terms(cos, positive, negative):
        seen.append(tuple(cos.shape))
        return torch.stack([(cos * negative).sum(), positive.sum().to(cos.dtype)])

    x, y = torch.randn(10, 3, requires_grad=True), torch.arange(10) % 2
    total = sum_over_pairs(terms, x, y, x, y, torch.arange(10), chunk=4)
    assert seen == [(4, 10), (4, 10), (2, 10)]
    assert total[1] == 10 * 4  # each sample has four others of its class
    total[0].backward()
    assert sorted(seen[3:]) == [(2, 10), (4, 10), (4, 10)]


def test_second_derivatives_go_through_blocks():
    y = torch.arange(6) % 2
    x = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)

    def terms(cos, positive, negative):
        return (cos.exp() * positive).sum().unsqueeze(0)

    whole, parts = (
        torch.autograd.grad(sum_over_pairs(terms, x, y, x, y, None, c).sum(), x, create_graph=True)[0]
        for c in (None, 2)
    )
    a, b = (torch.autograd.grad(g.square().sum(), x)[0] for g in (whole, parts))
    assert torch.allclose(a, b, rtol=1e-10)


def test_log_sum_exp_of_none_has_no_gradient():
    z = torch.randn(3, 4, requires_grad=True)
    among = torch.tensor([[1, 1, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1]], dtype=torch.bool)
    with torch.autograd.set_detect_anomaly(True, check_nan=True):
        value = log_sum_exp(z, among)
        value.exp().sum().backward()
    assert value[1] == -torch.inf
    assert torch.isfinite(z.grad).all()
    assert torch.allclose(value[[0, 2]], torch.stack([z[0, :2].logsumexp(0), z[2].logsumexp(0)]))
    assert (z.grad[~among] == 0).all()


def test_distance_has_no_slope_at_zero():
    cos = torch.tensor([1.0, 1.0000001, 0.0, -1.0], requires_grad=True)
    d = distance(cos)
    d.sum().backward()
    assert torch.allclose(d, torch.tensor([0.0, 0.0, 2**0.5, 2.0]))
    assert torch.isfinite(cos.grad).all()


@pytest.mark.untyped
@pytest.mark.parametrize("chunk", [0, -1, "all", True, 2.5])
def test_refuses(chunk):
    with pytest.raises(ValueError, match="chunk must be"):
        check_chunk(chunk)
