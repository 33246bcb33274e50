import copy

import pytest
import torch

from hypersphere.objectives import Contrastive, CrossBatchMemory, NTXent, SupCon, Triplet

from .contracts import batch


@pytest.mark.parametrize("pairs", [SupCon(), Contrastive(), Triplet(), NTXent()], ids=lambda loss: type(loss).__name__)
def test_is_the_loss_of_the_batch_plus_that_against_earlier_batches(pairs):
    memory = CrossBatchMemory(pairs, size=20, weight=0.5)
    batches = [batch(8, seed=seed) for seed in range(4)]
    seen_x, seen_y = torch.empty(0, 4, dtype=torch.float64), torch.empty(0, dtype=torch.long)
    for x, y in batches:
        x = x.clone().requires_grad_()
        expected = pairs(x, y)
        if len(seen_y):
            expected = expected + 0.5 * pairs(x, y, seen_x[-20:], seen_y[-20:])
        found = memory(x, y)
        assert torch.allclose(found, expected, rtol=1e-12)
        assert torch.allclose(*(torch.autograd.grad(value, x, retain_graph=True)[0] for value in (found, expected)))
        seen_x, seen_y = torch.cat([seen_x, x.detach()]), torch.cat([seen_y, y])
    assert len(memory) == 20
    assert not memory.features.requires_grad


def test_warmup_evaluation_and_ignored_samples():
    memory, plain = CrossBatchMemory(SupCon(ignore_index=-1), size=50, warmup=2), SupCon(ignore_index=-1)
    x, y = batch(8)
    y[0] = -1
    for _ in range(2):
        assert torch.equal(memory(x, y), plain(x, y))
    assert len(memory) == 14
    assert memory(x, y) > plain(x, y)
    before = len(memory)
    memory.eval()(x, y)
    assert len(memory) == before


def test_resumes_exactly():
    memory = CrossBatchMemory(SupCon(), size=30)
    for seed in range(3):
        memory(*batch(8, seed=seed))
    again = CrossBatchMemory(SupCon(), size=30)
    again.load_state_dict(memory.state_dict())
    twin = copy.deepcopy(memory)
    for seed in range(3, 6):
        found = [one(*batch(8, seed=seed)) for one in (memory, again, twin)]
        assert torch.equal(found[0], found[1])
        assert torch.equal(found[0], found[2])


@pytest.mark.untyped
def test_refuses():
    for options in ({"size": 0}, {"weight": -1.0}, {"warmup": -1}):
        with pytest.raises(ValueError, match=next(iter(options))):
            CrossBatchMemory(SupCon(), **options)
    with pytest.raises(ValueError, match="loss must be a loss over pairs"):
        CrossBatchMemory(torch.nn.MSELoss())
