import torch

from hypersphere import angular
from hypersphere.objectives.engine import ScoreFunction
from hypersphere.objectives.engine.chunked import BlockLogits, CosineLogits, Gradients, Inputs, MarginLogits
from hypersphere.objectives.engine.scores import prepare_features
from hypersphere.objectives.margins import NoMargin


def test_both_implementations_keep_the_protocol():
    x = prepare_features(torch.randn(2, 3), 1.0)
    hooked = MarginLogits(ScoreFunction(NoMargin(), angular.Linear(), 4), x, torch.zeros(2))
    assert isinstance(hooked, BlockLogits)
    assert isinstance(CosineLogits(1, True, None), BlockLogits)


def test_room_is_made_only_for_what_is_wanted():
    inputs = Inputs(torch.randn(4, 3), torch.zeros(4), (torch.randn(2, 3), torch.randn(2)))
    gradients = Gradients.allocate(inputs, [True, False, False, True])
    assert gradients.weight.shape == (4, 3)
    assert gradients.bias is None
    assert gradients.batch[0] is None
    assert (gradients.batch[1] == 0).all()
    assert Gradients.allocate(inputs._replace(bias=None), [False, True, False, False]).bias is None


def test_nothing_changes_between_the_passes():
    """Blocks can be computed and pulled back in any order, and repeatedly, with the same result."""
    logits = CosineLogits(2, True, None)
    inputs = Inputs(torch.randn(12, 3), None, (torch.randn(5, 3),))
    before = dict(vars(logits))
    parts = [slice(0, 2), slice(2, 6)]
    results = []
    for order in (parts, parts[::-1]):
        gradients = Gradients.allocate(inputs, [True, False, True])
        blocks = {part.start: logits.compute_block(part, inputs) for part in order}
        for part in order:
            logits.propagate(part, blocks[part.start], inputs, torch.ones_like, gradients)
        results.append(gradients)
    assert torch.equal(results[0].weight, results[1].weight)
    assert torch.allclose(results[0].batch[0], results[1].batch[0], atol=1e-6)
    assert vars(logits) == before
