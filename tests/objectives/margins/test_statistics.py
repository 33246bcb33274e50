import contextlib

import pytest
import torch

import hypersphere as hs
from hypersphere.objectives.margins import Context
from hypersphere.objectives.margins.statistics import compute_deviation, compute_mean

VALUES, OTHERWISE = torch.tensor([1.0, 5.0, 2.0, 9.0], dtype=torch.float64), torch.tensor(-1.0)


def test_all_count_unless_ignored():
    assert compute_mean(VALUES, Context(), OTHERWISE) == VALUES.mean()
    assert torch.allclose(compute_deviation(VALUES, Context(), OTHERWISE).double(), VALUES.std())
    context = Context(ignored=torch.tensor([False, True, False, False]))
    kept = VALUES[[0, 2, 3]]
    assert compute_mean(VALUES, context, OTHERWISE) == kept.mean()
    assert torch.allclose(compute_deviation(VALUES, context, OTHERWISE).double(), kept.std())
    assert compute_mean(VALUES, context, OTHERWISE).dtype == torch.float32


def test_too_few_give_the_other_value():
    none, one = torch.ones(4, dtype=torch.bool), torch.tensor([True, True, False, True])
    assert compute_mean(VALUES, Context(ignored=none), OTHERWISE) == -1
    assert compute_deviation(VALUES, Context(ignored=one), OTHERWISE) == -1
    assert compute_mean(VALUES, Context(ignored=one), OTHERWISE) == 2


@pytest.mark.parametrize("head", ["AdaFace", "CurricularFace", "AdaCos"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_one_batch_with_nan_does_not_spoil_a_head_for_good(head, bad):
    torch.manual_seed(0)
    made = getattr(hs, head)(4, 5)
    features, labels = torch.randn(8, 4), torch.arange(8) % 5
    made(features, labels)
    spoiled = features.clone()
    spoiled[3, 1] = bad
    with contextlib.suppress(ValueError):  # a head may refuse the batch
        made(spoiled, labels)
    assert all(buffer.isfinite().all() for buffer in made.buffers())
    assert made(features, labels).isfinite()
