import math

import pytest

from hypersphere.config import call
from hypersphere.energy import MHE
from hypersphere.orthogonal import overparameterize
from hypersphere.training import Config, replace
from studies.liu2020 import Axis, Tuning, make_rate_axis, make_weight_axis
from studies.liu2020.tuning import MAX_EXTENSIONS

PENALISED = replace(Config(), energy=call(MHE, hidden=1.0, output=2.0))


def searched(config, score, *axes):
    """Return the choice, and every choice that the search tried."""
    seen = []
    tuning = Tuning(axes or (make_rate_axis(0.3, 1, 3), make_weight_axis(0.1, 1, 10)), lambda config: config)
    return tuning.search(config, lambda choice: seen.append(dict(choice)) or score(choice)), seen


def test_an_inner_best_is_chosen_without_extending():
    choice, seen = searched(Config(), lambda c: -abs(math.log(c["lr"])))
    assert choice == {"lr": 1.0}
    assert [c["lr"] for c in seen] == [0.3, 1.0, 3.0]


@pytest.mark.parametrize(("target", "expected"), [(9.0, [0.3, 1, 3, 9, 27]), (0.09, [0.3, 1, 3, 0.09, 0.027])])
def test_a_grid_whose_best_is_at_its_edge_is_extended_until_it_is_not(target, expected):
    choice, seen = searched(Config(), lambda c: -abs(math.log(c["lr"] / target)))
    assert choice["lr"] == pytest.approx(target)
    assert [c["lr"] for c in seen] == pytest.approx(expected)


def test_an_endless_rise_ends_at_an_edge():
    choice, seen = searched(Config(), lambda c: c["lr"])
    assert choice["lr"] == max(c["lr"] for c in seen)
    assert len(seen) == 3 + MAX_EXTENSIONS


def test_the_weight_is_searched_at_the_best_rate_and_only_where_there_is_a_penalty():
    choice, seen = searched(PENALISED, lambda c: -abs(math.log(c["lr"] / 3)) - abs(math.log(c["weight"])))
    assert choice == {"lr": 3.0, "weight": 1.0}
    assert {c["weight"] for c in seen[:4]} == {1.0}
    assert {c["lr"] for c in seen[4:]} == {3.0}
    assert "weight" not in searched(Config(), lambda c: 0.0)[0]


def test_of_equals_the_factor_nearest_one_wins_and_divergence_loses():
    assert searched(Config(), lambda c: 0.0)[0] == {"lr": 1.0}
    assert searched(Config(), lambda c: -math.inf if c["lr"] >= 1 else c["lr"])[0] == {"lr": 0.3}


def test_rates_multiply_the_rate_and_that_of_rotations_where_there_are_any():
    axis = make_rate_axis(0.3, 1, 3)
    plain, turned = Config(), replace(Config(), orthogonal=call(overparameterize, method="ogd"))
    assert axis.change(plain, 3).optimizer.get("lr") == 0.3
    assert axis.change(plain, 3).rotations == plain.rotations
    assert axis.change(turned, 3).rotations.get("lr") == 0.06  # three times the default of 0.02


def test_weights_multiply_both_terms_and_must_be_written_out():
    axis = make_weight_axis(0.1, 1, 10)
    assert axis.change(PENALISED, 10).energy.arguments == {"hidden": 10.0, "output": 20.0}
    with pytest.raises(ValueError, match="MHE must have its weights written out"):
        axis.change(replace(Config(), energy=call(MHE)), 10)


@pytest.mark.parametrize("factors", [(1.0, 3.0), (3.0, 1.0, 0.3), (1.0, 1.0, 3.0), (-1.0, 1.0, 3.0)])
def test_refuses(factors):
    with pytest.raises(ValueError, match="factors must be three or more"):
        Axis("lr", factors, lambda config, factor: config)
