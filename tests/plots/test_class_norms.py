import math

import pytest
import scipy.stats
import torch

from hypersphere.plots import plot_class_biases, plot_class_norms
from hypersphere.plots.class_norms import correlate_ranks


def test_points_are_counts_and_norms():
    weight, labels = torch.randn(4, 3), torch.tensor([0, 0, 0, 2, 2, 3])
    _, ax = plot_class_norms(weight, labels)
    points = torch.from_numpy(ax.collections[0].get_offsets().data)
    assert points[:, 0].tolist() == [3, 0, 2, 1]
    torch.testing.assert_close(points[:, 1], weight.double().norm(dim=1))
    assert "samples" in ax.get_xlabel()


def test_the_rank_correlation_agrees_with_scipy():
    x, y = torch.randint(5, (40,)).double(), torch.randn(40, dtype=torch.float64)
    assert correlate_ranks(x, y) == pytest.approx(scipy.stats.spearmanr(x.numpy(), y.numpy()).statistic)
    assert math.isnan(correlate_ranks(torch.ones(3), torch.arange(3.0)))


def test_biases_by_class():
    bias = torch.tensor([0.1, -0.2, 0.3, 0.0], requires_grad=True)
    _, ax = plot_class_biases(bias, title="biases")
    assert ax.lines[0].get_ydata() == pytest.approx([0.1, -0.2, 0.3, 0.0])
    assert ax.get_title() == "biases"


def test_refuses_a_label_without_a_row():
    with pytest.raises(ValueError, match="labels must lie in 0 … 1, got 0 … 5"):
        plot_class_norms(torch.randn(2, 3), torch.tensor([0, 5]))
