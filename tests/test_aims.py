"""The page of aims says what the reports say."""

import importlib.util
import json
import pathlib

import pytest

BENCHMARKS = pathlib.Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(scope="module")
def aims():
    spec = importlib.util.spec_from_file_location("aims", BENCHMARKS / "aims.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_that_of_the_reports(aims):
    assert (BENCHMARKS / "README.md").read_text(encoding="utf-8") == aims.page(), "run python benchmarks/aims.py"


def test_a_missed_aim_and_one_without_a_report_are_said(aims, tmp_path, monkeypatch):
    monkeypatch.setattr(aims, "HERE", tmp_path)
    (tmp_path / "reports").mkdir()
    found = {
        "conditions": "2026-01-02, torch, 2 threads, …",
        "header": ["way", "of a step"],
        "rows": [["a", "+1,000.5 %"]],
    }
    (tmp_path / "reports" / "r.json").write_text(json.dumps(found))
    met, missed = (aims.Aim("w", "r", ("a",), "of a step", most, " %") for most in (2000, 3))
    assert aims.table([met])[-1] == "| w | ≤ 2000 % | 1e+03 % | yes | 2026-01-02, 2 threads | [r](reports/r.md) |"
    assert "| **no** |" in aims.table([missed])[-1]
    assert "not measured" in aims.table([met._replace(report="absent")])[-1]
    with pytest.raises(ValueError, match="no row"):
        aims.table([met._replace(cells=("b",))])


def test_a_floor_above_the_aim_and_a_column_that_is_not_there_are_said(aims, tmp_path, monkeypatch):
    monkeypatch.setattr(aims, "HERE", tmp_path)
    (tmp_path / "reports").mkdir()
    found = {
        "conditions": "2026-01-02, torch, 1 threads, …",
        "header": ["way", "ratio"],
        "rows": [["frozen", 0.9], ["ours", 1.0]],
    }
    (tmp_path / "reports" / "r.json").write_text(json.dumps(found))
    aim = aims.Aim("w", "r", ("ours",), "ratio", 0.8, "", ("frozen",))
    assert "**no**; the aim is below what the frozen network alone costs (0.9)" in aims.table([aim])[-1]
    assert "| **no** |" in aims.table([aim._replace(most=0.95)])[-1]
    assert "not measured" in aims.table([aim._replace(column="seconds")])[-1]
