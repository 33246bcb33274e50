import pytest
import torch

from hypersphere.operators.attention_heads import additive_mask, join_heads, put_batch_first, split_heads


def test_joining_undoes_splitting():
    x = torch.randn(2, 5, 8)
    assert torch.equal(join_heads(split_heads(x, 4)), x)
    assert torch.equal(split_heads(x, 4)[:, 1], x[..., 2:4])


def test_the_batch_comes_first():
    x = torch.randn(5, 3, 8)
    assert torch.equal(put_batch_first(x, batch_first=False)[1], x[:, 1])
    assert put_batch_first(x, batch_first=True) is x
    with pytest.raises(ValueError, match=r"got the shape \(5,\)"):
        put_batch_first(torch.zeros(5), batch_first=True)


def test_masks_add_up():
    attention, padding = torch.randn(3, 4), torch.tensor([[False] * 4, [False, False, True, True]])
    mask = additive_mask(attention, padding, 2, 2, torch.float64)
    assert mask.shape == (2, 1, 3, 4)
    assert mask.dtype == torch.float64
    assert torch.equal(mask[0, 0], attention.double())
    assert (mask[1, 0, :, 2:] == float("-inf")).all()
    per_head = torch.randn(4, 3, 4)
    assert torch.equal(additive_mask(per_head, None, 2, 2, torch.float32)[1, 0], per_head[2])
    assert additive_mask(None, None, 2, 2, torch.float32) is None
