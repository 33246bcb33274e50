import json

import pytest

from studies.liu2020 import CLAIMS, get_claim, report
from studies.liu2020.rows import FOLDER, append_row, select_rows, select_superseded_rows
from studies.liu2020.runner import count_missing

from .tiny import claim


def rows(gap=10.0, seeds=3):
    """Return rows like recorded ones: accuracies near 50, 51 and 52, plus the gap for the second arm."""
    found = []
    for seed in range(seeds):
        for arm, start in (("a/softmax", 50.0), ("b/margin", 50.0 + gap)):
            value = start + seed + (0.1 * seed if arm == "b/margin" else 0)
            common = {
                "setting": json.loads(json.dumps(claim().arms("laptop")[arm].list_settings())),
                "choice": None,
                "seconds": 60.0,
                "threads": 1,
                "date": "2026-01-02",
                "version": "0.1.0",
                "curve": {"step": [0, 2, 4], "accuracy": [10.0, 30.0, value]},
            }
            found.append({"arm": arm, "seed": seed, "size": "laptop", "metrics": {"accuracy": value}, **common})
    return found


def test_rows_of_earlier_settings_are_shown_as_such_and_count_for_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "CLAIMS", {"tiny": claim()})
    old = [{**row, "setting": {**row["setting"], "steps": 3}} for row in rows(gap=99.0)]
    for row in old:
        append_row(tmp_path / "tiny.jsonl", row)
    assert select_rows(claim(), tmp_path) == []
    assert select_superseded_rows(claim(), tmp_path) == sorted(old, key=lambda row: (row["arm"], row["seed"]))
    text = report.format_page(claim(), tmp_path)
    told = "| 0.1 | Digits | 0 (6 missing, 6 superseded) | 0 of 0, 2 not measured | not measured |"
    assert f"| [A tiny claim](pages/tiny.md) {told}" in report.format_index(tmp_path)
    assert "**Verdict: not measured.**" in text
    assert "No runs with the present settings of the claim." in text
    before, _, after = text.partition("**Superseded.**")
    assert "150.10 ± 0.64" not in before
    assert "| margin | 150.10 ± 0.64 | 3 |" in after
    for row in rows():
        append_row(tmp_path / "tiny.jsonl", row)
    text = report.format_page(claim(), tmp_path)
    assert "**Verdict: holds.**" in text
    assert "| margin | 150.10 ± 0.64 | 3 |" in text.partition("**Superseded.**")[2]
    assert len(select_rows(claim(), tmp_path)) == len(select_superseded_rows(claim(), tmp_path)) == 6


def test_writing_makes_the_report_and_small_pictures(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "CLAIMS", {"tiny": claim(), "other": get_claim("opt")})
    for row in [*rows(gap=99.0), *rows()]:  # later rows replace earlier ones
        append_row(tmp_path / "results" / "tiny.jsonl", row)
    written = report.write_report(tmp_path / "results", tmp_path)
    names = [path.relative_to(tmp_path).as_posix() for path in written]
    assert names == ["README.md", "pages/effects.png", "pages/tiny.png", "pages/tiny.md"]
    assert all(path.stat().st_size < 100_000 for path in written)
    index, page = written[0].read_text(encoding="utf-8"), written[-1].read_text(encoding="utf-8")
    assert index.index("cannot refute") < index.index("pages/effects.png") < index.index("| claim |")
    assert "61.10 ± 0.64" in page
    assert "](tiny.png)" in page
    assert report.format_summary(tmp_path / "results") in index
    assert "| [A tiny claim](pages/tiny.md) | 0.1 | Digits | 6 | 2 of 2 | holds |" in index
    assert "| 0 of 0," in index
    assert "tiny     6 runs    0 missing  A tiny claim" in report.format_listing(tmp_path / "results")


@pytest.mark.slow
def test_the_committed_report_is_what_the_committed_rows_give():
    root = FOLDER
    assert (root / "README.md").read_text(encoding="utf-8") == report.format_index()
    for id, one in CLAIMS.items():
        assert (root / "pages" / f"{id}.md").read_text(encoding="utf-8") == report.format_page(one)
    for id in ("effects", *CLAIMS):
        assert 0 < (root / "pages" / f"{id}.png").stat().st_size < 150_000


def test_no_recorded_run_was_lost_by_a_rename():
    """Renaming a setting's key or class would make recorded runs count as missing."""
    found = {id: count_missing(one, FOLDER / "rows") for id, one in CLAIMS.items()}
    assert found == dict.fromkeys(CLAIMS, 0)
