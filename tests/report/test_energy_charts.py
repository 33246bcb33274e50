"""Charts of the energy with its two references, and of the operators' learned parameters."""

import json
import math

import pytest
import torch

from hypersphere.energy import energy_lower_bound
from hypersphere.energy.checkpoint_report import energy_report
from hypersphere.report.energy_charts import make_checkpoint_section, make_energy_section, make_learned_section
from hypersphere.report.runs import read_runs
from tests.report.runs_for_tests import write_run


def test_references_are_those_of_the_layer(tmp_path):
    _, chart = make_energy_section(read_runs([write_run(tmp_path / "a")])).blocks
    course, random, least = chart.traces
    assert course["y"][0] == 0.6
    assert random["y"] == pytest.approx([25 / 48] * 2)  # (d − 2)/(2(d − 3))
    assert least["y"] == [energy_lower_bound(6, 27)] * 2
    assert "6 neurons in 27 dimensions" in chart.caption


def test_many_layers_share_one_chart(tmp_path):
    folder = write_run(tmp_path / "a", weights={f"conv{i}.weight": torch.randn(6, 27) for i in range(12)})
    rows = [{"step": step, **{f"energy/conv{i}": 0.6 - 0.01 * i for i in range(12)}} for step in range(5)]
    (folder / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    _, chart, table = make_energy_section(read_runs([folder])).blocks
    assert len(chart.traces) == len(table.rows) == 12
    assert chart.traces[3]["y"][0] == pytest.approx(0.57 / (25 / 48))
    assert table.rows[3][:4] == ["conv3", "6 × 27", "0.57", "0.57"]


def test_learned_values_are_not_logarithms(tmp_path):
    weights = {"conv.angular.log_k": torch.full((4,), math.log(0.3)), "a.log_rho": torch.zeros(2)}
    k, rho = make_learned_section(read_runs([write_run(tmp_path / "a", weights=weights)])).blocks
    assert k.traces[0]["y"] == pytest.approx([0.3] * 4)
    assert k.traces[0]["name"] == "conv.angular"
    assert rho.traces[0]["y"] == [1.0, 1.0]


def test_nothing_learned_is_no_section(tmp_path):
    assert make_learned_section(read_runs([write_run(tmp_path / "a")])) is None


@pytest.mark.parametrize("bounded", [True, False])
def test_checkpoint_has_a_row_for_each_layer(bounded):
    layers = energy_report({"fc.weight": torch.eye(4), "b.weight": torch.randn(5, 6)})
    chart, table = make_checkpoint_section(layers, "net", bounded).blocks
    assert [row[0] for row in table.rows] == ["fc.weight", "b.weight"]
    assert len(chart.traces) == 2 + bounded
    assert all(len(row) == len(table.columns) for row in table.rows)
    assert chart.traces[-1]["x"][0] == pytest.approx(0.5 / layers[0].random_mean)
