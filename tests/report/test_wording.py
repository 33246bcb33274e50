"""Numbers with their units."""

import math

import pytest

from hypersphere.report.wording import duration, text, title, value


@pytest.mark.parametrize(
    ("measure", "number", "written"),
    [("eer", 4.61482, "4.615 %"), ("intra_angle", math.pi, "180°"), ("lambda", 5, "5"), ("loss", math.nan, "–")],
)
def test_values(measure, number, written):
    assert value(measure, number) == written


def test_settings():
    assert text({"least": 1, "most": [2, None]}) == "least: 1; most: 2, none"
    assert text(1_000_000) == "1,000,000"


def test_names_and_times():
    assert title("unknown_one") == "unknown one"
    assert duration(3599.9) == "1 h 0 min"
