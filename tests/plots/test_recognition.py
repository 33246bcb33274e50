from statistics import NormalDist

import pytest
import torch

from hypersphere.plots import plot_cmc, plot_contact_sheet, plot_cosine_confusion, plot_det, plot_distractors, plot_roc


def test_roc_has_steps_and_no_zero_on_a_logarithmic_axis():
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


def test_every_picture_lies_in_its_strip_and_nothing_overlaps():
    strips = [([torch.rand(3, 8, 16), torch.randint(0, 256, (3, 8, 16)).byte()], f"strip {i}") for i in range(5)]
    figure, ax = plot_contact_sheet(strips, columns=2, title="title")
    boxes = [image.get_extent() for image in ax.images]
    assert len(boxes) == 10
    for i, (left, right, bottom, top) in enumerate(boxes):
        assert right - left == pytest.approx(2 * (top - bottom))
        for other in boxes[:i]:
            assert right <= other[0] or other[1] <= left or top <= other[2] or other[3] <= bottom
    assert [text.get_text() for text in ax.texts] == [f"strip {i}" for i in range(5)]
    assert ax.get_title() == "title"
    figure.canvas.draw()


def test_pixels_are_scaled():
    _, ax = plot_contact_sheet([([torch.full((1, 2, 2), 255, dtype=torch.uint8), torch.full((1, 2, 2), 0.5)], "")])
    assert ax.images[0].get_array().max() == 1
    assert ax.images[1].get_array().max() == 0.5


def test_refuses():
    for strips, columns in (([], 1), ([([], "none")], 1), ([([torch.zeros(1, 2, 2)], "x")], 0)):
        with pytest.raises(ValueError, match="strips must hold pictures and columns be ≥ 1"):
            plot_contact_sheet(strips, columns=columns)
