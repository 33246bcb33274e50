import json
import math
import pickle

import pytest

from hypersphere.evaluation import Figure, Measurement, Report
from hypersphere.evaluation.figures import format_rate, format_table


class Minimal(Report):
    title = "minimal"

    def figures(self):
        return [
            Figure("a", math.nan),
            Figure("b", 1, "pairs"),
            Figure("c", "text"),
            Figure("d", 0.5, low=0.0, high=1.0),
        ]

    def plot(self, ax=None):
        raise AssertionError("never drawn")


def test_nonfinite_numbers_are_null():
    content = json.loads(Minimal().json())
    assert content["report"] == "minimal"
    assert [entry["value"] for entry in content["figures"].values()] == [None, 1, "text", 0.5]
    assert content["figures"]["d"] == {
        "value": 0.5,
        "unit": "",
        "interval": [0.0, 1.0],
        "interval over": None,
        "count": None,
    }


def test_numbers_are_values_by_name():
    numbers = Minimal().numbers()
    assert list(numbers) == ["a", "b", "c", "d"]
    assert numbers["b"] == 1


def test_the_table_is_aligned_and_has_units():
    figures = [Figure("x", 1), Figure("long name", 0.123456789, "fraction", 0.1, 0.2, 7), Figure("t", 30.0, "degrees")]
    assert format_table("t", figures).splitlines() == [
        "t",
        "  x                   1",
        "  long name     12.35 %  [10, 20] %  n=7",
        "  t          30 degrees",
    ]


def test_a_figure_of_a_measurement_has_its_interval():
    figure = Figure.of("rate", Measurement(0.5, 0.25, 0.75), count=4)
    assert (figure.value, figure.low, figure.high, figure.unit) == (0.5, 0.25, 0.75, "fraction")
    assert type(figure.value) is float
    assert Figure.of("rate", 0.5).low is None
    assert pickle.loads(pickle.dumps(figure)) == figure


@pytest.mark.parametrize(("rate", "name"), [(0.1, "1e-1"), (1e-6, "1e-6"), (2.5e-3, "2.5e-3"), (1.0, "1e0")])
def test_names_of_rates(rate, name):
    assert format_rate(rate) == name
