"""Training curves keep every peak and show all runs."""

from hypersphere.report.page_parts import Chart
from hypersphere.report.runs import read_runs
from hypersphere.report.training_charts import make_line, make_training_section, thin_points
from tests.report.runs_for_tests import write_run


def test_thinning_keeps_peaks_and_the_end():
    y = [0.0] * 10_000
    y[4321], y[777] = 9.0, -9.0
    x, kept = thin_points(range(10_000), y, 100)
    assert len(x) <= 102
    assert 9.0 in kept
    assert -9.0 in kept
    assert x[-1] == 9999
    assert x == sorted(x)


def test_two_points_are_no_line():
    assert make_line("a", [0, 1], [1, 2], 0)["mode"] == "markers"
    assert make_line("a", range(100), range(100), 0)["mode"] == "lines"


def test_curves_of_two_runs_are_overlaid(tmp_path):
    runs = read_runs([write_run(tmp_path / "a"), write_run(tmp_path / "b", seed=1)])
    charts = {chart.key: chart for chart in make_training_section(runs).blocks if isinstance(chart, Chart)}
    assert {"training-loss", "training-eer", "training-tar", "training-lr", "training-lambda"} <= set(charts)
    assert [trace["name"] for trace in charts["training-eer"].traces] == ["a", "b"]
    assert charts["training-eer"].traces[1]["y"][0] == 51.0
