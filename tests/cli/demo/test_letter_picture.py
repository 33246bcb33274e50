import numpy as np
import pytest
from PIL import Image

from hypersphere.cli.demo.letter_gallery import Probe
from hypersphere.cli.demo.letter_picture import REJECTED, RIGHT, WRONG, describe_answer, draw_answers
from hypersphere.recognition import Match


@pytest.mark.parametrize(
    ("letter", "match", "answer"),
    [
        ("georgian-an", Match("georgian-an", 0.9, True), ("an", RIGHT)),
        ("georgian-an", Match("georgian-ban", 0.9, True), ("ban", WRONG)),
        ("georgian-an", Match("georgian-an", 0.3, False), ("unknown", REJECTED)),
        ("armenian-ben", Match("georgian-an", 0.3, False), ("unknown", RIGHT)),
        ("armenian-ben", Match("georgian-an", 0.9, True), ("an", WRONG)),
    ],
)
def test_answers_and_their_colors(letter, match, answer, tmp_path):
    assert describe_answer(Probe(tmp_path / "x.png", letter, match)) == answer


def draw(folder, name, accepted):
    """Draw 30 accepted Georgian letters and 3 Armenian letters, accepted or rejected. Return the pixels."""
    probes = []
    for i, (letter, found) in enumerate([("georgian-an", True)] * 30 + [("armenian-ben", accepted)] * 3):
        file = folder / f"{i}.png"
        Image.fromarray(np.full((8, 8), 40, np.uint8)).save(file)
        probes.append(Probe(file, letter, Match("georgian-ban" if accepted else "georgian-an", 0.5 + i / 100, found)))
    assert draw_answers(folder / name, probes, 0.7) == folder / name
    return np.asarray(Image.open(folder / name).convert("RGB")).astype(int)


def test_the_picture_has_letters_and_colored_answers(tmp_path):
    right, wrong = draw(tmp_path, "right.png", False), draw(tmp_path, "wrong.png", True)
    assert right.shape == wrong.shape == (468, 1080, 3)  # 12 × 5.2 inches at 90 pixels per inch

    def count(picture, channel):
        others = np.delete(picture, channel, 2).max(2)
        return int((picture[..., channel] - others > 60).sum())

    assert count(right, 1) > 50  # green answers
    assert count(wrong, 1) == 0
    letters = (np.abs(right - 40).max(2) == 0).sum()
    assert letters > 21 * 8 * 8  # 18 of the 30 Georgian letters and all three Armenian ones, enlarged
