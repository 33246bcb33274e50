"""Sections about results, choices, data and the commands that repeat a run."""

import dataclasses
import json

import torch

from hypersphere.evaluation import Figure
from hypersphere.report.overview import (
    MAX_EXAMPLE_CHARACTERS,
    _shorten,
    make_choices_section,
    make_data_section,
    make_repeat_section,
    make_result_section,
)
from hypersphere.report.page_parts import Commands
from hypersphere.report.runs import read_runs
from tests.report.runs_for_tests import evidence, write_run


def rows_of(section):
    return {row[0]: row[1] for block in section.blocks for row in getattr(block, "rows", [])}


def test_result_has_units(tmp_path):
    (run,) = read_runs([write_run(tmp_path / "a")])
    facts, table = make_result_section(run).blocks
    assert ("Equal error rate", "4 %", "") in facts.items
    assert ("Wall time", "1 min 15 s", "") in facts.items
    assert ["angle within a class", "11.46°"] in table.rows
    assert not [row for row in table.rows if "energy" in row[0]]


def test_figures_of_the_report_have_the_intervals_of_the_terminal(tmp_path):
    folder = write_run(tmp_path / "a")
    figures = [Figure("pairs", 90, "pairs"), Figure("EER", 0.1, "fraction", 1e-18, 0.25, 90, "identities")]
    content = {"figures": {figure.name: figure.entry() for figure in figures}}
    (folder / "report.json").write_text(json.dumps(content))
    (run,) = read_runs([folder])
    assert list(run.figures) == figures
    facts, table, note, *_ = make_result_section(run).blocks
    assert facts.items[0] == ("EER", "10 %", "[0, 25] %")
    assert table.rows == [["pairs", "90 pairs", "", ""], ["EER", "10 %", "[0, 25] %", "n=90"]]
    assert note.text == "Intervals: 95 %, over identities."


def test_a_fit_from_python_has_no_command_that_fails(tmp_path):
    (run,) = read_runs([write_run(tmp_path / "a")])
    run = dataclasses.replace(run, document={"fit": {}, "source": {"source": "people"}})
    lines = make_repeat_section([run], []).blocks[0].lines
    assert lines[-1].startswith("# made in Python with hypersphere.fit")


def test_choices_have_their_reasons(tmp_path):
    choice = {"key": "margin", "value": 0.3, "reason": "few identities"}
    first, settings = make_choices_section(read_runs([write_run(tmp_path / "a", choices=[choice])])).blocks
    assert first.rows == [["margin", "0.3", "few identities"]]
    assert ["head", "ArcFace"] in settings.rows


def test_equal_pictures_with_different_labels_are_found(tmp_path):
    kept = evidence()
    kept.images[11] = kept.images[0]
    (run,) = read_runs([write_run(tmp_path / "a", kept=kept)])
    run = dataclasses.replace(run, check={"format": "x", "images": 40, "duplicates": ["a = b"] * 5})
    rows = rows_of(make_data_section([run]))
    assert (
        rows["equal pictures"] == "2 samples share their picture with another sample; pictures with several labels: 1"
    )
    assert rows["duplicates"] == "5: a = b; a = b; a = b …"
    assert rows["samples"] == "40 of 80 measured samples"
    assert "format" not in rows


def test_examples_of_a_finding_are_cut_off():
    many = ", ".join(f"people/{i}.png" for i in range(1000))
    assert len(_shorten(many)) < MAX_EXAMPLE_CHARACTERS + 5
    assert _shorten(many).endswith(".png, …")
    assert _shorten("a, b") == "a, b"


def test_commands_repeat_it(tmp_path):
    (run,) = read_runs([write_run(tmp_path / "a b")])
    section = make_repeat_section([run], ["a b"])
    lines = [line for block in section.blocks if isinstance(block, Commands) for line in block.lines]
    assert "# hypersphere 0.1.0, torch 2.6.0" in lines
    assert "hypersphere report 'a b'" in lines
    (tmp_path / "a b" / "command.txt").write_text("hypersphere train x\n")
    (again,) = read_runs([tmp_path / "a b"])
    assert "hypersphere train x" in make_repeat_section([again], []).blocks[0].lines


def test_tensors_of_no_samples(tmp_path):
    kept = dataclasses.replace(
        evidence(), features=torch.empty(0, 3), labels=torch.empty(0, dtype=torch.long), images=None
    )
    (run,) = read_runs([write_run(tmp_path / "a", kept=kept)])
    assert make_data_section([run]) is None
