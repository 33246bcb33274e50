import sys

import pytest

from hypersphere.plots import canvas


def test_colors_repeat_after_ten():
    assert len(set(canvas.PALETTE)) == 10
    assert canvas.color(0) == canvas.color(10)


def test_new_axes_and_given_ones():
    fig, ax = canvas.axes()
    assert canvas.axes(ax) == (fig, ax)
    canvas.tidy(ax, title="t", xlabel="x", ylabel="y")
    assert (ax.get_title(), ax.get_xlabel(), ax.get_ylabel()) == ("t", "x", "y")
    assert not ax.spines["top"].get_visible()


def test_no_global_state_holds_a_figure():
    for _ in range(30):
        canvas.axes()
    if "matplotlib.pyplot" in sys.modules:
        assert not sys.modules["matplotlib.pyplot"].get_fignums()


def test_panels_are_side_by_side():
    figure, row = canvas.panels(3, size=(2.0, 1.5))
    assert figure.get_size_inches().tolist() == [6.0, 1.5]
    assert len(row) == 3
    with pytest.raises(ValueError, match="columns must be an integer ≥ 1"):
        canvas.panels(0)


def test_curves_differ_beyond_the_palette():
    styles = [tuple(canvas.style(index).values()) for index in range(30)]
    assert len(set(styles)) == 30


@pytest.mark.parametrize("entries", [1, 2, 6])
def test_the_legend_is_beside_the_curves(entries):
    figure, ax = canvas.axes()
    for index in range(entries):
        ax.plot([0, 1], [index, index], label=str(index))
    canvas.tidy(ax, legend=True)
    figure.canvas.draw()
    assert ax.get_legend().get_window_extent().x0 >= ax.get_window_extent().x1 - 1
