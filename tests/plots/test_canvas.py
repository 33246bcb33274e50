from hypersphere.plots import _canvas


def test_colours_differ_and_repeat():
    assert len(set(_canvas.PALETTE)) == 10
    assert _canvas.color(0) == _canvas.color(10)


def test_new_axes_and_given_ones():
    fig, ax = _canvas.axes()
    assert _canvas.axes(ax) == (fig, ax)
    _canvas.tidy(ax, title="t", xlabel="x", ylabel="y")
    assert (ax.get_title(), ax.get_xlabel(), ax.get_ylabel()) == ("t", "x", "y")
    assert not ax.spines["top"].get_visible()


def test_curves_are_told_apart_beyond_the_palette():
    styles = [tuple(_canvas.style(index).values()) for index in range(30)]
    assert len(set(styles)) == 30


def test_a_long_legend_stands_beside_the_curves():
    figure, ax = _canvas.axes()
    for index in range(6):
        ax.plot([0, 1], [index, index], label=str(index))
    _canvas.tidy(ax, legend=True)
    figure.canvas.draw()
    assert ax.get_legend().get_window_extent().x0 >= ax.get_window_extent().x1 - 1
