import json
import pathlib

import pytest

from hypersphere.experiments import reproduce
from hypersphere.experiments.reproduce import results, runner

from .tiny import claim


def rows(gap=10.0, seeds=3):
    """As if recorded: accuracies 50, 51, 52 and as many plus the gap."""
    found = []
    for seed in range(seeds):
        for arm, start in (("a/softmax", 50.0), ("b/margin", 50.0 + gap)):
            value = start + seed
            curve = {"step": [0, 2, 4], "accuracy": [10.0, 30.0, value]}
            common = {
                "setting": json.loads(json.dumps(runner.setting(claim().configs("laptop")[arm]))),
                "choice": None,
                "seconds": 60.0,
                "threads": 1,
                "date": "2026-01-02",
                "version": "0.1.0",
            }
            found.append(
                {"arm": arm, "seed": seed, "size": "laptop", "metrics": {"accuracy": value}, "curve": curve, **common}
            )
    return found


def test_a_section_has_everything_and_its_numbers_come_from_the_rows():
    text = results.section(claim(), rows(), "docs/results/tiny.png")
    for part in (
        "**Claim.** Heads differ.",
        "**Verdict: holds.** Because.",
        "- table 0.1, accuracy (%): softmax: 90.0; margin: N/C",
        "| a | accuracy (%) | seeds |",
        "| softmax | 51.00 ± 0.58 | 3 |",
        "| margin | 61.00 ± 0.58 | 3 |",
        "![Curves.](docs/results/tiny.png)",
        "- everything is smaller",
        "| margin above softmax | 61.00 ± 0.58 against 51.00 ± 0.58 | holds |",
        "| not nothing | 51.00 ± 0.58 against 1 | holds |",
        "6 runs, 6 minutes in all, 1 thread(s) of a CPU, 2026-01-02, hypersphere 0.1.0.",
    ):
        assert part in text
    assert "**Verdict: holds in part.**" in results.section(claim(), rows(gap=0.1))
    assert "No runs are recorded." in results.section(claim(), [])


def test_rows_of_earlier_settings_are_shown_as_such_and_count_for_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "CLAIMS", {"tiny": claim()})
    old = [{**row, "setting": {**row["setting"], "steps": 3}} for row in rows(gap=99.0)]
    for row in old:
        runner.append_row(tmp_path / "tiny.jsonl", row)
    assert runner.recorded(claim(), tmp_path) == []
    assert runner.superseded(claim(), tmp_path) == sorted(old, key=lambda row: (row["arm"], row["seed"]))
    text = results.text(tmp_path)
    assert (
        "| [A tiny claim](RESULTS.md#tiny) | tables 0.1 | Digits | 0 (6 superseded) | 0 of 0 | not measured |" in text
    )
    assert "**Verdict: not measured.**" in text
    assert "Nothing yet with the setting the claim has now." in text
    before, _, after = text.partition("**Superseded.**")
    assert "150.00 ± 0.58" not in before
    assert "| margin | 150.00 ± 0.58 | 3 |" in after
    for row in rows():
        runner.append_row(tmp_path / "tiny.jsonl", row)
    text = results.text(tmp_path)
    assert "**Verdict: holds.**" in text
    assert "| margin | 150.00 ± 0.58 | 3 |" in text.partition("**Superseded.**")[2]
    assert len(runner.recorded(claim(), tmp_path)) == len(runner.superseded(claim(), tmp_path)) == 6


def test_writing_makes_the_report_and_small_pictures(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "CLAIMS", {"tiny": claim(), "other": reproduce.get("opt")})
    for row in [*rows(gap=99.0), *rows()]:  # the later rows count
        runner.append_row(tmp_path / "results" / "tiny.jsonl", row)
    written = results.write(tmp_path / "results", tmp_path)
    assert [path.relative_to(tmp_path).as_posix() for path in written] == ["RESULTS.md", "docs/results/tiny.png"]
    assert written[1].stat().st_size < 100_000
    text = written[0].read_text(encoding="utf-8")
    assert "61.00 ± 0.58" in text
    assert results.summary(tmp_path / "results") in text
    assert "| [A tiny claim](RESULTS.md#tiny) | tables 0.1 | Digits | 6 | 2 of 2 | holds |" in text
    assert "| 0 | 0 of 0 | not measured |" in text
    assert "tiny     6 runs  A tiny claim" in results.listing(tmp_path / "results")


@pytest.mark.parametrize(
    ("error", "text"), [(0.0123, "5.000 ± 0.012"), (12.3, "5 ± 12"), (0.0, "5.0000 ± 0.0000"), (float("nan"), "5")]
)
def test_numbers_have_as_many_digits_as_their_error(error, text):
    assert results.shown(reproduce.Estimate(5.0, error, 3)) == text


def test_the_committed_report_is_what_the_committed_rows_give():
    root = pathlib.Path(__file__).parents[3]
    assert (root / "RESULTS.md").read_text(encoding="utf-8") == results.text(root / "results")
    readme = (root / "README.md").read_text(encoding="utf-8")
    assert results.START in readme
    assert results.with_summary(readme, root / "results") == readme
    for id in reproduce.CLAIMS:
        assert (root / results.PICTURES / f"{id}.png").stat().st_size < 100_000
