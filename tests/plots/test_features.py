import pytest
import torch

from hypersphere.geometry import uniform
from hypersphere.plots import plot_features, plot_neurons


@pytest.mark.parametrize("dim", [2, 3])
def test_directions_are_drawn_by_class(dim):
    features, labels = 7 * torch.randn(30, dim), torch.arange(30) % 3
    fig, ax = plot_features(features, labels, centers=uniform(3, dim), title="heads")
    assert ax.figure is fig
    assert ax.get_title() == "heads"
    assert len(ax.collections) == 3
    drawn = torch.as_tensor(
        ax.collections[1].get_offsets()
        if dim == 2
        else torch.stack([torch.as_tensor(c) for c in ax.collections[1]._offsets3d], 1)
    )
    assert torch.allclose(drawn.float().norm(dim=1), torch.ones(10), atol=1e-5)


def test_lengths_are_kept_on_request():
    features = torch.tensor([[3.0, 4.0], [0.0, 1.0]])
    _, ax = plot_features(features, torch.zeros(2, dtype=torch.long), on_sphere=False)
    assert torch.equal(torch.as_tensor(ax.collections[0].get_offsets()).float(), features)


def test_draws_on_given_axes():
    fig, ax = plot_features(torch.randn(5, 2), torch.zeros(5, dtype=torch.long))
    again, same = plot_features(torch.randn(5, 2), torch.zeros(5, dtype=torch.long), ax=ax)
    assert (again, same) == (fig, ax)


def test_half_space_neurons_come_with_their_opposites():
    weight = torch.randn(8, 2)
    _, ax = plot_neurons(weight, half_space=True)
    points, opposites = (torch.as_tensor(c.get_offsets()) for c in ax.collections)
    assert torch.allclose(points, -opposites)


def test_refuses_more_dimensions():
    with pytest.raises(ValueError, match="2 or 3 dimensions"):
        plot_features(torch.randn(5, 4), torch.zeros(5, dtype=torch.long))
