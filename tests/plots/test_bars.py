import pytest
import torch

from hypersphere.plots import plot_bars, plot_reliability


def test_bars_go_from_the_top_with_their_intervals():
    _, ax = plot_bars({"a": 0.5, "b": 0.25}, intervals={"b": (0.2, 0.4)}, xlabel="accuracy", limits=(0, 1))
    assert [bar.get_width() for bar in ax.patches] == [0.5, 0.25]
    assert ax.yaxis_inverted()
    assert len(ax.lines) == 1
    assert list(ax.lines[0].get_xdata()) == [0.2, 0.4]
    assert ax.get_xlim() == (0, 1)


def test_empty_bins_are_not_drawn():
    _, ax = plot_reliability(torch.tensor([0.1, 0.5, 0.9]), torch.tensor([0.2, 0.0, 1.0]), torch.tensor([5, 0, 10]))
    points, areas = ax.collections[0].get_offsets(), ax.collections[0].get_sizes()
    assert [v for point in points.tolist() for v in point] == pytest.approx([0.1, 0.2, 0.9, 1.0])
    assert areas[1] > areas[0]
