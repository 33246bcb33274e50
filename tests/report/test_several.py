"""Several runs are shown side by side."""

import dataclasses

from hypersphere.evaluation import compare_embedders
from hypersphere.report.page_parts import Grid, Note
from hypersphere.report.runs import read_runs
from hypersphere.report.several import NEGATIVES, RESAMPLES, can_compare, list_differing_settings, make_measures_section
from tests.report.runs_for_tests import evidence, write_run


def test_only_differing_settings_are_listed(tmp_path):
    runs = read_runs([write_run(tmp_path / "a"), write_run(tmp_path / "b", seed=1, head="CosFace")])
    assert list_differing_settings(runs) == [["head", "ArcFace", "CosFace"], ["head.m", "0.5", "0.4"]]


def test_paired_table_is_the_paired_bootstrap(tmp_path):
    one, two = evidence(spread=0.3), evidence(spread=0.9)
    runs = read_runs([write_run(tmp_path / "a", kept=one), write_run(tmp_path / "b", kept=two)])
    table = make_measures_section(runs).blocks[1]
    assert isinstance(table, Grid)
    expected = compare_embedders(two.features, one.features, one.labels, negatives=NEGATIVES, resamples=RESAMPLES)
    assert table.rows[0][0] == "b"
    assert table.rows[0][3].startswith(f"{100 * expected.difference:+.3g} [")


def test_other_samples_are_not_paired(tmp_path):
    one = evidence()
    assert can_compare(one, evidence(seed=3))
    assert not can_compare(one, dataclasses.replace(one, images=one.images.flip(0)))
    assert not can_compare(one, dataclasses.replace(one, total=99))
    assert not can_compare(one, None)
    runs = read_runs([write_run(tmp_path / "a"), write_run(tmp_path / "b", kept=evidence(each=8))])
    notes = [block.text for block in make_measures_section(runs).blocks if isinstance(block, Note)]
    assert notes == ["Not measured on the same samples as a, or on too few identities, so not paired: b."]
