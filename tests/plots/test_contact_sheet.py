import pytest
import torch

from hypersphere.plots import plot_contact_sheet


def test_every_picture_lies_in_its_strip_and_nothing_overlaps():
    strips = [([torch.rand(3, 8, 16), torch.randint(0, 256, (3, 8, 16)).byte()], f"strip {i}") for i in range(5)]
    figure, ax = plot_contact_sheet(strips, columns=2, title="title")
    boxes = [image.get_extent() for image in ax.images]
    assert len(boxes) == 10
    for i, (left, right, bottom, top) in enumerate(boxes):
        assert right - left == pytest.approx(2 * (top - bottom))
        for other in boxes[:i]:
            assert right <= other[0] or other[1] <= left or top <= other[2] or other[3] <= bottom
    assert [text.get_text() for text in ax.texts] == [f"strip {i}" for i in range(5)]
    assert ax.get_title() == "title"
    figure.canvas.draw()


def test_pixels_are_scaled():
    _, ax = plot_contact_sheet([([torch.full((1, 2, 2), 255, dtype=torch.uint8), torch.full((1, 2, 2), 0.5)], "")])
    assert ax.images[0].get_array().max() == 1
    assert ax.images[1].get_array().max() == 0.5


def test_refuses():
    for strips, columns in (([], 1), ([([], "none")], 1), ([([torch.zeros(1, 2, 2)], "x")], 0)):
        with pytest.raises(ValueError, match="strips must hold pictures and columns be ≥ 1"):
            plot_contact_sheet(strips, columns=columns)
