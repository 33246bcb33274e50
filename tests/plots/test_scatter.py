import math

import pytest
import torch

from hypersphere.geometry import uniform
from hypersphere.plots import plot_features, plot_neurons


def drawn(collection, dim):
    if dim == 2:
        return torch.as_tensor(collection.get_offsets())
    return torch.stack([torch.as_tensor(c) for c in collection._offsets3d], 1)


@pytest.mark.parametrize("dim", [2, 3])
def test_directions_are_drawn_by_class(dim):
    features, labels = 7 * torch.randn(30, dim), torch.arange(30) % 3
    fig, ax = plot_features(features, labels, centers=uniform(3, dim), far_side=True, title="heads")
    assert ax.figure is fig
    assert ax.get_title() == "heads"
    assert len(ax.collections) == 3
    assert torch.allclose(drawn(ax.collections[1], dim).float().norm(dim=1), torch.ones(10), atol=1e-5)
    assert [text.get_text() for text in ax.texts] == ["0", "1", "2"]


def test_the_sphere_hides_its_far_side():
    features = torch.randn(400, 3)
    _, ax = plot_features(features, torch.arange(400) % 2, view=(10, 40))
    assert (ax.elev, ax.azim) == (10, 40)
    up, about = math.radians(ax.elev), math.radians(ax.azim)
    eye = torch.tensor([math.cos(up) * math.cos(about), math.cos(up) * math.sin(about), math.sin(up)])
    shown = torch.cat([drawn(c, 3) for c in ax.collections]).float()
    assert len(shown) == int((features @ eye >= 0).sum()) < 400
    assert (shown @ eye >= -1e-6).all()
    _, glass = plot_features(features, torch.arange(400) % 2, far_side=True)
    assert sum(len(drawn(c, 3)) for c in glass.collections) == 400


def test_the_default_view_shows_most_classes():
    features = torch.tensor([[1.0, 0.2, 0.1], [0.9, 0.1, 0.3], [0.8, -0.2, 0.2], [-1.0, 0.0, 0.0]])
    _, ax = plot_features(features, torch.arange(4))
    assert [text.get_text() for text in ax.texts] == ["0", "1", "2"]


def test_classes_are_named_unless_they_are_many():
    _, ax = plot_features(torch.eye(2), torch.arange(2), names=["left", "right"])
    assert [text.get_text() for text in ax.texts] == ["left", "right"]
    _, ax = plot_features(uniform(30, 2), torch.arange(30))
    assert not ax.texts


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
    _, ax = plot_neurons(torch.randn(8, 3), half_space=True)
    assert sum(len(drawn(c, 3)) for c in ax.collections) == 8  # one neuron of each pair is on the visible side


def test_refuses_more_dimensions():
    with pytest.raises(ValueError, match="2 or 3 dimensions"):
        plot_features(torch.randn(5, 4), torch.zeros(5, dtype=torch.long))


def test_the_name_of_a_class_is_near_its_features():
    features = torch.tensor([[1.0, 0.02], [1.0, -0.02], [0.0, 1.0]])
    _, ax = plot_features(features, torch.tensor([0, 0, 1]), centers=torch.tensor([[-1.0, 0.0], [0.0, 1.0]]))
    assert ax.texts[0].get_position() == pytest.approx((1.14, 0.0), abs=1e-6)


def test_the_name_of_a_class_in_the_middle_is_above_it():
    eye = torch.tensor([1.0, 0.0, 0.0])
    _, ax = plot_features(torch.stack([eye, torch.tensor([0.0, 1.0, 0.1])]), torch.arange(2), view=(0, 0))
    assert torch.tensor(ax.texts[0].get_position_3d()).allclose(torch.tensor([1.0, 0.0, 0.14]))
