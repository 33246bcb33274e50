import pytest
import torch

from hypersphere.plots import plot_angle_histogram, plot_histogram, plot_learned_k


def test_pairs_fall_into_the_right_histogram():
    features = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0], [0.0, 3.0]])
    _, ax = plot_angle_histogram(features, torch.tensor([0, 0, 1, 1]), bins=4)
    same, different = ([patch.get_height() * 45 for patch in container] for container in ax.containers)
    assert same == pytest.approx([1, 0, 0, 0])
    assert different == pytest.approx([0, 0, 1, 0])
    assert ax.get_legend() is not None


def test_one_class_has_only_one_histogram():
    _, ax = plot_angle_histogram(torch.randn(4, 3), torch.zeros(4, dtype=torch.long))
    assert len(ax.containers) == 1


def test_learned_k_has_one_outline_per_layer():
    _, ax = plot_learned_k({"conv1": torch.rand(8), "conv2": torch.rand(8)})
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["conv1", "conv2"]


def test_refuses():
    with pytest.raises(ValueError, match="at least two"):
        plot_angle_histogram(torch.randn(1, 3), torch.zeros(1, dtype=torch.long))
    with pytest.raises(ValueError, match="at least one layer"):
        plot_learned_k({})


def test_common_bins_and_counts():
    _, ax = plot_histogram({"a": torch.tensor([0.0, 1.0]), "b": torch.tensor([3.0])}, bins=3, density=False)
    assert [[bar.get_height() for bar in container] for container in ax.containers] == [[1, 1, 0], [0, 0, 1]]
    assert (ax.get_ylabel(), ax.get_legend() is not None) == ("count", True)
    with pytest.raises(ValueError, match="at least one number"):
        plot_histogram({"a": torch.rand(0)})
