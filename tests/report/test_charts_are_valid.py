"""Every chart of every page is valid under plotly's schema."""

import pytest

from hypersphere.report._render import round_numbers
from hypersphere.report.page_parts import Chart
from hypersphere.report.pages import make_run_page
from hypersphere.report.runs import read_runs
from tests.report.runs_for_tests import evidence, write_run

OURS = ("tint", "band", "of")


@pytest.mark.parametrize("dim", [2, 3, 6])
def test_plotly_accepts_every_trace_and_layout(tmp_path, dim):
    graph_objects = pytest.importorskip("plotly.graph_objects")
    paths = [write_run(tmp_path / name, seed=i, kept=evidence(dim=dim, seed=i)) for i, name in enumerate("ab")]
    for some in (paths[:1], paths):
        page = make_run_page(read_runs(some), [str(path) for path in some])
        charts = [block for section in page.sections for block in section.blocks if isinstance(block, Chart)]
        assert len({chart.key for chart in charts}) == len(charts) > 8
        for chart in charts:
            traces = [{k: v for k, v in round_numbers(trace).items() if k not in OURS} for trace in chart.traces]
            graph_objects.Figure(traces, round_numbers(dict(chart.layout)))
            assert chart.summary.strip()
