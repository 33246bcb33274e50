import json
import math

from hypersphere.evaluation.report import Report, table


class Minimal(Report):
    title = "minimal"

    def numbers(self):
        return {"a": math.nan, "b": 1, "c": "text", "d": 0.5}

    def draw(self, axes):
        axes.plot([0, 1], [0, 1])


def test_what_is_not_finite_is_null():
    assert json.loads(Minimal().json()) == {"report": "minimal", "a": None, "b": 1, "c": "text", "d": 0.5}


def test_the_table_is_aligned():
    lines = table("t", {"x": 1, "long name": 0.123456789}).splitlines()
    assert lines == ["t", "  x               1", "  long name  0.1235"]
