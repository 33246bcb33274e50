import math

import pytest
import torch

from hypersphere.evaluation import inception_score


def reference(probabilities, splits):
    """Compute the score with loops over Python floats."""
    rows, scores = probabilities.double().tolist(), []
    size, extra = divmod(len(rows), splits)
    begin = 0
    for index in range(splits):
        part = rows[begin : begin + size + (index < extra)]
        begin += len(part)
        marginal = [sum(row[c] for row in part) / len(part) for c in range(len(rows[0]))]
        total = 0.0
        for row in part:
            total += sum(p * (math.log(p) - math.log(m)) for p, m in zip(row, marginal, strict=True) if p > 0)
        scores.append(math.exp(total / len(part)))
    mean = sum(scores) / splits
    return mean, math.sqrt(sum((score - mean) ** 2 for score in scores) / splits)


@pytest.mark.parametrize(("count", "splits"), [(20, 1), (53, 10), (7, 7)])
def test_agrees_with_a_loop(count, splits):
    probabilities = torch.randn(count, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    probabilities = (4 * probabilities).softmax(1)
    probabilities[0] = torch.eye(6, dtype=torch.float64)[2]  # a probability of 0
    assert tuple(inception_score(probabilities, splits=splits)) == pytest.approx(reference(probabilities, splits))


def test_ends_of_the_range():
    assert inception_score(torch.eye(5).repeat(4, 1), splits=4) == pytest.approx((5, 0))
    assert inception_score(torch.full((30, 5), 0.2)) == pytest.approx((1, 0))
    assert inception_score(torch.eye(5)[:1].repeat(10, 1)) == pytest.approx(
        (1, 0)
    )  # confident predictions of a single class


@pytest.mark.parametrize(
    ("probabilities", "splits", "message"),
    [
        (torch.eye(3), 4, "splits must lie in 1 … 3, the number of images, got 4"),
        (torch.randn(12, 3), 2, "probabilities must be finite, ≥ 0 and sum to 1"),
        (torch.full((12, 3), float("nan")), 2, "probabilities must be finite"),
    ],
)
def test_refuses(probabilities, splits, message):
    with pytest.raises(ValueError, match=message):
        inception_score(probabilities, splits=splits)
