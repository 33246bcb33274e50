import torch

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
