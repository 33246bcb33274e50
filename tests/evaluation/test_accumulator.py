import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hypersphere.evaluation import VerificationAccumulator, verification
from tests.evaluation.test_roc import pairs


@given(pairs(least=10), st.lists(st.integers(0, 60), max_size=5), st.randoms(use_true_random=False), st.booleans())
def test_batches_in_any_order_give_the_report_of_one_batch(case, cuts, random, folded):
    scores, same = case
    fold = torch.arange(len(scores)) % 3 if folded else None
    order = list(range(len(scores)))
    random.shuffle(order)
    edges = [0, *sorted(min(c, len(scores)) for c in cuts), len(scores)]
    stream = VerificationAccumulator()
    for a, b in itertools.pairwise(edges):
        rows = order[a:b]
        stream.update(scores[rows], same[rows], None if fold is None else fold[rows])
    assert len(stream) == len(scores)
    assert stream.compute().json() == verification(scores, same, fold=fold).json()


def test_shards_merge():
    scores, same, fold = torch.rand(50), torch.arange(50) % 2 == 0, torch.arange(50) % 5
    left, right = VerificationAccumulator(), VerificationAccumulator()
    left.update(scores[:20], same[:20], fold[:20])
    right.update(scores[20:], same[20:], fold[20:])
    left.merge(right)
    assert left.compute().json() == verification(scores, same, fold=fold).json()


def test_raw_cosines_in_batches_give_the_same_report():
    # Some metrics rescale scores outside [0, 1] per batch, which would change the result.
    same = torch.arange(200) % 2 == 0
    scores = torch.where(same, 0.1, -0.6) + 0.5 * torch.rand(200)
    stream = VerificationAccumulator()
    for rows in torch.randperm(200).split(7):
        stream.update(scores[rows], same[rows])
    assert stream.compute().auc == verification(scores, same).auc


def test_a_refused_batch_changes_nothing():
    stream = VerificationAccumulator()
    stream.update(torch.rand(3), torch.tensor([True, False, True]))
    for scores, same, fold in [
        (torch.tensor([0.1, float("nan")]), torch.tensor([True, False]), None),
        (torch.rand(2), torch.tensor([True]), None),
        (torch.rand(2), torch.tensor([True, False]), torch.tensor([0, 1])),
    ]:
        with pytest.raises(ValueError, match="must"):
            stream.update(scores, same, fold)
    assert len(stream) == 3


def test_refuses_folds_of_another_shape_and_nothing_at_all():
    stream = VerificationAccumulator()
    with pytest.raises(ValueError, match="no pairs were added"):
        stream.compute()
    with pytest.raises(ValueError, match="fold must have the shape of scores"):
        stream.update(torch.rand(2), torch.tensor([True, False]), torch.tensor([0]))
