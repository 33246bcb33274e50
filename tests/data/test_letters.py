import numpy as np
import pytest
import torch

from hypersphere.data import Letters
from hypersphere.data.letters import SCRIPTS, find_typefaces, render_letter


@pytest.fixture(scope="module")
def letters():
    return Letters(["latin", "greek", "cyrillic"])


def test_shapes_that_look_the_same_are_one_class(letters):
    """A is the first letter of three alphabets, but only one class."""
    assert letters.classes.count("LATIN CAPITAL LETTER A") == 1
    assert "GREEK CAPITAL LETTER ALPHA" not in letters.classes
    assert "CYRILLIC CAPITAL LETTER A" not in letters.classes
    assert "CYRILLIC CAPITAL LETTER ZHE" in letters.classes
    capital_a = letters.labels == letters.classes.index("LATIN CAPITAL LETTER A")
    assert capital_a.sum() == 3 * len(find_typefaces())


def test_letters_with_accents_are_classes_of_their_own(letters):
    assert {"LATIN SMALL LETTER E", "LATIN SMALL LETTER E WITH ACUTE"} <= set(letters.classes)


def test_every_letter_has_enough_typefaces_and_some_ink(letters):
    assert letters.labels.bincount().min() >= 12
    assert letters.data.dtype == torch.uint8
    assert (letters.data.amin((1, 2, 3)) < 128).all()


def test_no_two_classes_share_a_picture_in_most_typefaces():
    georgian = Letters(["georgian"])
    pictures = [row.numpy().tobytes() for row in georgian.data]
    assert len(set(pictures)) == len(pictures)


def test_the_picture_is_that_of_pillow():
    """The bounding box of the ink agrees with matplotlib's renderer within two pixels."""
    from matplotlib.figure import Figure
    from matplotlib.font_manager import FontProperties

    file = find_typefaces()[0]
    figure = Figure(figsize=(1, 1), dpi=112)
    figure.text(
        0.5, 0.28, "R", ha="center", va="baseline", fontproperties=FontProperties(fname=str(file), size=0.66 * 72)
    )
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    other = np.asarray(canvas.buffer_rgba())[..., 0]
    mine = render_letter("R", file, 112)
    boxes = [np.argwhere(picture < 128) for picture in (mine, other)]
    edges = [np.concatenate([box.min(0), box.max(0)]) for box in boxes]
    assert np.abs(edges[0] - edges[1]).max() <= 3


def test_refuses():
    with pytest.raises(ValueError, match=r"scripts must be some of latin, .* got klingon"):
        Letters(["klingon"])
    with pytest.raises(ValueError, match="size must be at least 8 pixels, got 4"):
        Letters(["greek"], size=4)
    assert set(SCRIPTS) == {"latin", "greek", "cyrillic", "georgian", "armenian"}
