"""The page of performance goals agrees with the recorded reports."""

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


def record(folder, header, rows):
    (folder / "reports").mkdir()
    (folder / "reports" / "r.json").write_text(json.dumps({"conditions": "", "header": header, "rows": rows}))


def test_page_agrees_with_the_reports(aims):
    assert (BENCHMARKS / "README.md").read_text(encoding="utf-8") == aims.format_page(), "run python benchmarks/aims.py"


def test_every_recorded_goal_is_on_the_page(aims):
    for question, rows in aims.AIMS.items():
        for label, goals in rows.items():
            assert goals, (question, label)
            assert len({(goal.most, goal.unit) for goal in goals}) == 1, f"{label}: the goals of one row must be equal"
            assert any(aims.read_measurement(goal) is not None for goal in goals), f"{label} has no measurement"


def test_rows_name_missed_goals_and_missing_reports(aims, tmp_path, monkeypatch):
    monkeypatch.setattr(aims, "HERE", tmp_path)
    record(tmp_path, ["way", "of a step"], [["a", "+1,000.5 %"], ["b", "2 %"]])
    met, missed = (aims.Aim("w", "r", ("a",), "of a step", most, " %") for most in (2000, 3))
    assert aims.format_row("label", [met]) == "| label | ≤ 2000 % | 1e+03 % | yes | [r](reports/r.md) |"
    assert "| **no** |" in aims.format_row("label", [missed])
    assert "| 2–1e+03 % | 1 of 2; not w 1e+03 |" in aims.format_row("label", [missed, missed._replace(cells=("b",))])
    assert "not measured" in aims.format_row("label", [met._replace(report="absent")])
    with pytest.raises(ValueError, match="no row"):
        aims.format_row("label", [met._replace(cells=("c",))])


def test_rows_name_a_floor_above_the_goal(aims, tmp_path, monkeypatch):
    monkeypatch.setattr(aims, "HERE", tmp_path)
    record(tmp_path, ["way", "ratio"], [["frozen", 0.9], ["ours", 1.0]])
    aim = aims.Aim("w", "r", ("ours",), "ratio", 0.8, "", ("frozen",))
    assert "**no**; the frozen network alone takes 0.9" in aims.format_row("label", [aim])
    assert "| **no** |" in aims.format_row("label", [aim._replace(most=0.95)])
    assert "not measured" in aims.format_row("label", [aim._replace(column="seconds")])
