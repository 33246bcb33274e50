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
