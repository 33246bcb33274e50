from statistics import NormalDist

import pytest
import torch

from hypersphere.plots import plot_cmc, plot_cosine_confusion, plot_det, plot_distractors, plot_roc


def test_roc_has_steps_and_leaves_zero_out_of_a_logarithmic_axis():
    far = torch.tensor([0.0, 1e-3, 1e-2, 1.0])
    _, ax = plot_roc({"a": (far, far.sqrt())})
    assert ax.get_xscale() == "log"
    assert ax.lines[0].get_xdata().tolist() == pytest.approx([1e-3, 1e-2, 1.0])
    assert ax.lines[0].get_ydata()[-1] == 1
    assert ax.lines[0].get_drawstyle() == "steps-post"
    _, ax = plot_roc({"a": (far, far.sqrt())}, log=False, identification=True)
    assert len(ax.lines[0].get_xdata()) == 4
    assert ax.get_ylabel() == "true positive identification rate"


def test_det_is_straight_for_normal_scores():
    normal = NormalDist()
    thresholds = [-1.0, 0.0, 1.0, 2.0]
    far, frr = [1 - normal.cdf(t) for t in thresholds], [NormalDist(2, 1).cdf(t) for t in thresholds]
    _, ax = plot_det({"a": ([0.0, *far], [1.0, *frr])})
    x, y = ax.lines[0].get_data()
    assert len(x) == 4
    assert [a + b for a, b in zip(x, y, strict=True)] == pytest.approx([-2] * 4)
    assert "0.1" in [label.get_text() for label in ax.get_xticklabels()]


def test_cmc_starts_at_rank_one():
    _, ax = plot_cmc({"a": [0.5, 0.8]})
    assert list(ax.lines[0].get_xdata()) == [1, 2]
    assert ax.get_xscale() == "linear"
    _, ax = plot_cmc({"a": torch.linspace(0, 1, 60)})
    assert ax.get_xscale() == "log"


@pytest.mark.parametrize(("sizes", "line"), [([10, 100], "None"), ([10, 100, 1000], "-")])
def test_rates_among_distractors(sizes, line):
    _, ax = plot_distractors(sizes, {"rank-1": [0.9] * len(sizes), "rank-10": [1.0] * len(sizes)})
    assert [drawn.get_linestyle() for drawn in ax.lines] == [line, line]
    assert list(ax.lines[0].get_xdata()) == sizes


def test_cosine_confusion_is_symmetric_with_a_unit_diagonal():
    _, ax = plot_cosine_confusion(torch.randn(4, 6), names=list("abcd"))
    shown = torch.as_tensor(ax.images[0].get_array())
    assert torch.allclose(shown, shown.T, atol=1e-6)
    assert shown.diagonal().tolist() == pytest.approx([1, 1, 1, 1], abs=1e-5)
    assert [t.get_text() for t in ax.get_xticklabels()] == list("abcd")
