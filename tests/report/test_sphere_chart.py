"""The projection to three dimensions, compared with a singular value decomposition, and the labels of points."""

import pytest
import torch

from hypersphere.report.runs import read_runs
from hypersphere.report.sphere_chart import MAX_CLASSES, make_sphere_section, project_to_space
from tests.report.runs_for_tests import evidence, write_run


def test_projection_is_the_best_of_three_dimensions():
    features = torch.randn(40, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    unit = features / features.norm(dim=1, keepdim=True)
    points, share = project_to_space(features)
    _, values, axes = torch.linalg.svd(unit)
    assert share == pytest.approx(float(values[:3].square().sum() / values.square().sum()), rel=1e-10)
    expected = unit @ axes[:3].T
    expected = expected / expected.norm(dim=1, keepdim=True)
    torch.testing.assert_close((points @ points.T), expected @ expected.T)


@pytest.mark.parametrize("dim", [2, 3])
def test_few_dimensions_keep_all_angles(dim):
    features = torch.randn(20, dim)
    points, share = project_to_space(features)
    unit = features.double() / features.double().norm(dim=1, keepdim=True)
    assert share == 1.0
    torch.testing.assert_close(points @ points.T, unit @ unit.T)


def test_every_sample_is_a_point_and_says_its_class(tmp_path):
    runs = read_runs([write_run(tmp_path / "a", kept=evidence(dim=4))])
    (chart,) = make_sphere_section(runs, {}).blocks
    points = [trace for trace in chart.traces if trace["mode"] == "markers"]
    assert sorted(i for trace in points for i in trace["customdata"]) == list(range(40))
    assert chart.extra["samples"][39]["text"].startswith("dog\n")
    assert "4 dimensions projected to 3" in chart.caption


def test_many_classes_are_cut_and_counted(tmp_path):
    kept = evidence(classes=[f"c{i}" for i in range(80)], each=3)
    (chart,) = make_sphere_section(read_runs([write_run(tmp_path / "a", kept=kept)]), {}).blocks
    assert len(chart.extra["classes"]) == MAX_CLASSES
    assert f"{3 * MAX_CLASSES} samples of {MAX_CLASSES} classes" in chart.caption


def test_few_samples_of_many_dimensions_lie_where_the_full_decomposition_puts_them():
    features = torch.randn(20, 50, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    points, share = project_to_space(features)
    unit = torch.nn.functional.normalize(features)
    values, axes = torch.linalg.eigh(unit.T @ unit)
    expected = torch.nn.functional.normalize(unit @ axes[:, -3:])
    torch.testing.assert_close(points @ points.T, expected @ expected.T)
    assert share == pytest.approx(float(values[-3:].sum() / values.sum()))
