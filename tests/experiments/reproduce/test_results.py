import json
import pathlib

from hypersphere.experiments import reproduce
from hypersphere.experiments.reproduce import results
from hypersphere.experiments.reproduce.rows import append_row, recorded, superseded

from .tiny import claim


def rows(gap=10.0, seeds=3):
    """As if recorded: accuracies 50, 51, 52 and about as many plus the gap."""
    found = []
    for seed in range(seeds):
        for arm, start in (("a/softmax", 50.0), ("b/margin", 50.0 + gap)):
            value = start + seed + (0.1 * seed if arm == "b/margin" else 0)
            common = {
                "setting": json.loads(json.dumps(claim().arms("laptop")[arm].setting())),
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
    monkeypatch.setattr(results, "CLAIMS", {"tiny": claim()})
    old = [{**row, "setting": {**row["setting"], "steps": 3}} for row in rows(gap=99.0)]
    for row in old:
        append_row(tmp_path / "tiny.jsonl", row)
    assert recorded(claim(), tmp_path) == []
    assert superseded(claim(), tmp_path) == sorted(old, key=lambda row: (row["arm"], row["seed"]))
    text = results.text(tmp_path)
    told = "| 0.1 | Digits | 0 (6 missing, 6 superseded) | 0 of 0, 2 not measured | not measured |"
    assert f"| [A tiny claim](RESULTS.md#tiny) {told}" in text
    assert "**Verdict: not measured.**" in text
    assert "Nothing yet with the setting the claim has now." in text
    before, _, after = text.partition("**Superseded.**")
    assert "150.10 ± 0.64" not in before
    assert "| margin | 150.10 ± 0.64 | 3 |" in after
    for row in rows():
        append_row(tmp_path / "tiny.jsonl", row)
    text = results.text(tmp_path)
    assert "**Verdict: holds.**" in text
    assert "| margin | 150.10 ± 0.64 | 3 |" in text.partition("**Superseded.**")[2]
    assert len(recorded(claim(), tmp_path)) == len(superseded(claim(), tmp_path)) == 6


def test_writing_makes_the_report_and_small_pictures(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "CLAIMS", {"tiny": claim(), "other": reproduce.get("opt")})
    for row in [*rows(gap=99.0), *rows()]:  # the later rows count
        append_row(tmp_path / "results" / "tiny.jsonl", row)
    written = results.write(tmp_path / "results", tmp_path)
    names = [path.relative_to(tmp_path).as_posix() for path in written]
    assert names == ["RESULTS.md", "docs/results/effects.png", "docs/results/tiny.png"]
    assert all(path.stat().st_size < 100_000 for path in written)
    text = written[0].read_text(encoding="utf-8")
    assert text.index("docs/results/effects.png") < text.index("| claim |") < text.index("docs/results/tiny.png")
    assert "61.10 ± 0.64" in text
    assert results.summary(tmp_path / "results") in text
    assert "| [A tiny claim](RESULTS.md#tiny) | 0.1 | Digits | 6 | 2 of 2 | holds |" in text
    assert "| 0 of 0," in text
    assert "tiny     6 runs    0 missing  A tiny claim" in results.listing(tmp_path / "results")


def test_the_committed_report_is_what_the_committed_rows_give():
    root = pathlib.Path(__file__).parents[3]
    assert (root / "RESULTS.md").read_text(encoding="utf-8") == results.text(root / "results")
    readme = (root / "README.md").read_text(encoding="utf-8")
    assert results.START in readme
    assert results.with_summary(readme, root / "results") == readme
    for id in ("effects", *reproduce.CLAIMS):
        picture = root / results.PICTURES / f"{id}.png"
        drawn = id == "effects" or recorded(reproduce.get(id), root / "results")  # rows that are superseded are tables
        assert picture.exists() == bool(drawn)
        assert not drawn or picture.stat().st_size < 150_000
