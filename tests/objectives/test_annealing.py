import itertools
import math

import pytest
import torch

from hypersphere.objectives import Annealing


def test_the_schedule():
    annealing = Annealing(1000, 5, rate=0.12, power=1.0)
    values = []
    for _ in range(2001):
        values.append(annealing.value.item())
        annealing.step()
    assert values[0] == 1000
    assert values[10] == pytest.approx(1000 / 2.2, rel=1e-6)
    assert values[-1] == 5
    assert all(a >= b for a, b in itertools.pairwise(values))


def test_reading_it_does_not_move_it():
    annealing = Annealing()
    assert annealing.value == annealing.value == 1000
    assert annealing.steps == 0


def test_it_is_saved_and_not_rounded_with_the_weights():
    annealing = Annealing(1000, 5)
    for _ in range(2049):
        annealing.step()
    resumed = Annealing(1000, 5)
    resumed.load_state_dict(annealing.half().state_dict())
    assert resumed.steps == 2049
    assert resumed.value == annealing.value


def test_prints_the_schedule():
    assert repr(Annealing(100, 1)) == "Annealing(start=100, floor=1, rate=0.12, power=1)"


@pytest.mark.parametrize(
    "options",
    [{"start": 1, "floor": 5}, {"floor": -1}, {"start": math.inf}, {"rate": -1}, {"power": math.nan}],
    ids=str,
)
def test_refuses(options):
    with pytest.raises(ValueError, match="annealing needs"):
        Annealing(**options)


def test_a_step_is_not_part_of_a_graph():
    annealing = Annealing()
    assert not annealing.value.requires_grad
    assert annealing.value.dtype == torch.get_default_dtype()
