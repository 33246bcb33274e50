import itertools
import math
import warnings

import pytest
import torch

import hypersphere as hs
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


@pytest.mark.parametrize(
    "options",
    [{"annealing": Annealing()}, {"m": hs.objectives.Ramp(0.5, end=4)}, {"sample": 0.5}],
    ids=["annealing", "margin", "sample"],
)
def test_a_schedule_that_is_never_advanced_warns_once(options, monkeypatch):
    monkeypatch.setattr("hypersphere.objectives.head.MAX_UNADVANCED_PASSES", 3)
    x, y = torch.randn(2, 4), torch.tensor([0, 2])
    forgotten = hs.ArcFace(4, 3, **options)
    with pytest.warns(UserWarning, match=r"call head.step\(\) once per optimizer step") as caught:
        [forgotten(x, y) for _ in range(8)]
    assert len(caught) == 1
    advanced, plain, evaluated = hs.ArcFace(4, 3, **options), hs.ArcFace(4, 3), hs.ArcFace(4, 3, **options).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(8):
            advanced(x, y)
            advanced.step()
            plain(x, y)
            evaluated(x, y)
