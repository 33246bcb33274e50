import pytest
import torch

from hypersphere.plots import plot_filters


@pytest.mark.parametrize(("channels", "shape"), [(3, (11, 11, 3)), (1, (11, 11)), (5, (11, 11))])
def test_filters_form_a_grid(channels, shape):
    _, ax = plot_filters(torch.randn(4, channels, 5, 5))
    shown = ax.images[0].get_array()
    assert shown.shape == shape
    assert shown.min() == 0
    assert shown.max() == 1


def test_a_constant_filter_is_drawn():
    _, ax = plot_filters(torch.ones(1, 1, 3, 3), columns=1)
    assert ax.images[0].get_array().shape == (3, 3)
