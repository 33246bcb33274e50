import math

import numpy as np
import pytest
import torch

from hypersphere.objectives import ArcFace, ByClass, CosFace, LSoftmax, Ramp, Stages
from hypersphere.objectives.margins import Context
from tests.objectives.contracts import HeadContract, gradients


class TestRamp(HeadContract):
    """A ramp that has reached its end, so that the contract's own steps do not change it."""

    scale = 64.0

    def head(self, **options):
        torch.manual_seed(1)
        head = ArcFace(5, 11, m=Ramp(0.3, end=2), **options)
        for _ in range(2):
            head.margin.m.step()
        return head

    def psi(self, theta):
        u = theta + np.float64(np.float32(0.3))
        return np.where(u <= math.pi, np.cos(u), -np.cos(u) - 2)


class TestStages(HeadContract):
    scale = 30.0

    def head(self, **options):
        torch.manual_seed(1)
        head = CosFace(5, 11, m=Stages([0.1, 0.4], at=[1]), **options)
        head.margin.m.step()
        return head

    def psi(self, theta):
        return np.cos(theta) - np.float64(np.float32(0.4))


def walked(m, steps):
    values = []
    for _ in range(steps):
        values.append(m(Context()).item())
        m.step()
    return values


def test_a_linear_ramp():
    assert walked(Ramp(0.4, end=6, begin=2, start=0.1), 9) == pytest.approx(
        [0.1, 0.1, 0.1, 0.175, 0.25, 0.325, 0.4, 0.4, 0.4]
    )


def test_an_exponential_ramp_goes_most_of_the_way_early_and_ends_exactly():
    values = walked(Ramp(0.2, end=10, law="exponential"), 12)
    expected = [0.2 * (1 - 10 ** (-3 * t / 10)) / (1 - 1e-3) for t in range(10)]
    assert values[:10] == pytest.approx(expected, rel=1e-5)
    assert values[10] == values[11] == pytest.approx(0.2, rel=1e-6)
    assert values[3] > 0.17


def test_stages_are_large_margin_fine_tuning():
    assert walked(Stages([0.2, 0.3, 0.5], at=[2, 3]), 5) == pytest.approx([0.2, 0.2, 0.3, 0.5, 0.5])


@pytest.mark.parametrize("kind", [ArcFace, CosFace, LSoftmax])
@pytest.mark.parametrize("chunk", [None, 4])
def test_a_head_with_a_schedule_is_the_head_with_its_number(kind, chunk):
    start, stop = (1, 3) if kind is LSoftmax else (0, 0.4)
    head = kind(5, 11, m=Ramp(stop, end=4, start=start), dtype=torch.float64, chunk=chunk)
    x, y = torch.randn(6, 5, dtype=torch.float64), torch.randint(0, 11, (6,))
    for step in range(6):
        fixed = kind(5, 11, m=start + (stop - start) * min(step / 4, 1), dtype=torch.float64, chunk=chunk)
        fixed.weight.data = head.weight.data
        for a, b in zip(gradients(head, x, y), gradients(fixed, x, y), strict=True):
            assert torch.allclose(a, b, atol=1e-6)
        head.step()


def test_the_step_is_saved_and_only_step_moves_it():
    head = ArcFace(5, 11, m=Ramp(0.5, end=10))
    x, y = torch.randn(6, 5), torch.randint(0, 11, (6,))
    first = head(x, y)
    assert torch.equal(head(x, y), first)
    for _ in range(4):
        head.step()
    again = ArcFace(5, 11, m=Ramp(0.5, end=10))
    again.load_state_dict(head.state_dict())
    assert head.state_dict()["margin.m.steps"] == 4
    assert torch.equal(again(x, y), head(x, y))
    assert head(x, y) > first


def test_a_ramp_to_margins_by_class():
    head = CosFace(5, 3, m=Ramp(ByClass([0.1, 0.2, 0.4]), end=2))
    head.step()
    assert head.margin.m(Context(labels=torch.tensor([2, 0]))).tolist() == pytest.approx([0.2, 0.05])
    with pytest.raises(ValueError, match="for 4 classes"):
        CosFace(5, 4, m=Ramp(ByClass([0.1, 0.2, 0.4]), end=2))


@pytest.mark.untyped
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stop": 0.5, "end": 0}, "0 ≤ begin < end"),
        ({"stop": 0.5, "end": 3, "begin": 3}, "0 ≤ begin < end"),
        ({"stop": math.nan, "end": 3}, "finite numbers"),
        ({"stop": 0.5, "end": 3, "law": "cosine"}, "law must be"),
    ],
)
def test_refuses_ramps(options, message):
    with pytest.raises(ValueError, match=message):
        Ramp(**options)


@pytest.mark.parametrize(
    ("values", "at"), [([0.1], [3]), ([0.1, 0.2], [0]), ([0.1, 0.2, 0.3], [5, 4]), ([0.1, math.inf], [2])]
)
def test_refuses_stages(values, at):
    with pytest.raises(ValueError, match="must be"):
        Stages(values, at=at)


def test_a_margin_refuses_a_schedule_that_leaves_its_range():
    with pytest.raises(ValueError, match="margin m must be a number ≥ 1"):
        LSoftmax(5, 11, m=Ramp(4, end=3))
