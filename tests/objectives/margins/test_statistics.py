import torch

from hypersphere.objectives.margins import Context
from hypersphere.objectives.margins.statistics import deviation_of, mean_of

VALUES, OTHERWISE = torch.tensor([1.0, 5.0, 2.0, 9.0], dtype=torch.float64), torch.tensor(-1.0)


def test_all_count_unless_ignored():
    assert mean_of(VALUES, Context(), OTHERWISE) == VALUES.mean()
    assert torch.allclose(deviation_of(VALUES, Context(), OTHERWISE).double(), VALUES.std())
    context = Context(ignored=torch.tensor([False, True, False, False]))
    kept = VALUES[[0, 2, 3]]
    assert mean_of(VALUES, context, OTHERWISE) == kept.mean()
    assert torch.allclose(deviation_of(VALUES, context, OTHERWISE).double(), kept.std())
    assert mean_of(VALUES, context, OTHERWISE).dtype == torch.float32


def test_too_few_give_the_other_value():
    none, one = torch.ones(4, dtype=torch.bool), torch.tensor([True, True, False, True])
    assert mean_of(VALUES, Context(ignored=none), OTHERWISE) == -1
    assert deviation_of(VALUES, Context(ignored=one), OTHERWISE) == -1
    assert mean_of(VALUES, Context(ignored=one), OTHERWISE) == 2
