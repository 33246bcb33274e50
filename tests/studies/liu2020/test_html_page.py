"""The page of a claim is made from rows as the runner records them."""

from hypersphere.report.page_parts import Chart
from studies.liu2020 import CLAIMS
from studies.liu2020.html_page import make_claim_page, write_claim

CLAIM = CLAIMS["mhe"]
ROWS = [
    {
        "arm": arm,
        "seed": seed,
        "metrics": dict.fromkeys(CLAIM.metrics, 10.0 + seed + i),
        "curve": {"step": [0, 10, 20], "accuracy": [1.0, 2.0, 3.0]},
    }
    for i, arm in enumerate(CLAIM.arms("laptop"))
    for seed in range(2)
]


def test_every_measure_has_a_chart_and_every_arm_a_point(tmp_path):
    page = make_claim_page(CLAIM, ROWS, "python -m studies.liu2020 mhe")
    charts = {b.key: b for section in page.sections for b in section.blocks if isinstance(b, Chart)}
    assert len(charts) == len(CLAIM.metrics) + 1
    arms = next(iter(charts.values())).traces[0]
    assert len(arms["x"]) == len(CLAIM.arms("laptop"))
    assert arms["x"][0] == 10.5
    assert write_claim(CLAIM, ROWS, tmp_path / "claim.html").stat().st_size < 5_000_000


def test_a_claim_without_runs_has_a_page():
    assert [section.key for section in make_claim_page(CLAIM, []).sections] == ["result", "measured", "published"]
