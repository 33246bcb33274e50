"""Numbers are written with their units."""

import math

import pytest

from hypersphere.report.wording import format_duration, format_setting, format_value, name_measure


@pytest.mark.parametrize(
    ("measure", "number", "written"),
    [("eer", 4.61482, "4.615 %"), ("intra_angle", math.pi, "180°"), ("lambda", 5, "5"), ("loss", math.nan, "–")],
)
def test_values(measure, number, written):
    assert format_value(measure, number) == written


def test_settings():
    assert format_setting({"least": 1, "most": [2, None]}) == "least: 1; most: 2, none"
    assert format_setting(1_000_000) == "1,000,000"


def test_names_and_times():
    assert name_measure("unknown_one") == "unknown one"
    assert format_duration(3599.9) == "1 h 0 min"
