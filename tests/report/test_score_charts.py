"""Error rates of the page, compared with counts at every threshold."""

import math

import pytest
import torch

from hypersphere.report.runs import read_runs
from hypersphere.report.score_charts import (
    ScoredPairs,
    make_cmc_chart,
    make_det_chart,
    make_roc_chart,
    make_score_section,
    make_threshold_chart,
)
from tests.report.runs_for_tests import evidence, write_run

KEPT = evidence(spread=0.6)


def brute():
    """Return the angle and the kind of every pair, computed in plain Python."""
    rows = KEPT.features.double().tolist()
    found = []
    for i in range(len(rows)):
        for j in range(i + 1, len(rows)):
            dot = sum(a * b for a, b in zip(rows[i], rows[j], strict=True))
            cosine = dot / math.hypot(*rows[i]) / math.hypot(*rows[j])
            found.append((math.degrees(math.acos(max(-1, min(1, cosine)))), int(KEPT.labels[i]) == int(KEPT.labels[j])))
    return found


def test_rates_are_counts():
    extra = make_threshold_chart(0, "a", ScoredPairs.of(KEPT)).extra
    pairs = brute()
    for i in (1, 40, 100, 200, 359):
        stop = float(extra["stops"][i])
        far = sum(a <= stop for a, same in pairs if not same) / sum(not same for _, same in pairs)
        frr = sum(a > stop for a, same in pairs if same) / sum(same for _, same in pairs)
        assert float(extra["far"][i, 0]) == pytest.approx(far)
        assert float(extra["frr"][i, 0]) == pytest.approx(frr)
        assert extra["far"][i, 1] <= far <= extra["far"][i, 2]


def test_histograms_have_unit_area():
    for trace in make_threshold_chart(0, "a", ScoredPairs.of(KEPT)).traces:
        assert float(trace["y"].sum()) * 2 == pytest.approx(100)


def test_small_angles_have_an_axis_of_their_own():
    near = evidence(spread=1e-4, classes=("a", "b"))
    near.features[:] = near.features[3] + 1e-4 * torch.randn(20, 3)
    chart = make_threshold_chart(0, "a", ScoredPairs.of(near))
    assert chart.layout["xaxis"]["range"][1] < 1


def test_curves_end_where_they_must():
    roc = ScoredPairs.of(KEPT).roc
    line = make_roc_chart([(0, "a", roc)]).traces[2]
    assert float(line["x"][-1]) == 100
    assert float(line["y"][-1]) == 100
    low, high, middle = make_det_chart([(0, "a", roc)]).traces
    assert all(a <= b <= c for a, b, c in zip(low["y"], middle["y"], high["y"], strict=True))
    ranks = make_cmc_chart([(0, "a", KEPT)]).traces[2]
    assert float(ranks["y"][-1]) == 100
    assert ranks["x"].tolist() == [1, 2, 3, 4]


def test_one_class_has_no_errors(tmp_path):
    runs = read_runs([write_run(tmp_path / "a", kept=evidence(classes=("only",)))])
    assert make_score_section(runs, {"a": ScoredPairs.of(runs[0].evidence)}) is None
