import pathlib

import torch

from hypersphere.cli.demo.demo_page import format_answers, format_head
from hypersphere.cli.demo.four_heads import HEADS, HeadResult
from hypersphere.cli.demo.letter_gallery import Answers


def test_a_stranger_cannot_be_named_correctly():
    known = Answers("Georgian, enrolled", 33, 198, 180, 4, 14)
    assert format_answers(known) == ["Georgian, enrolled", "33", "198", "180", "4", "14"]
    assert format_answers(Answers("Armenian, new strangers", 23, 276, 0, 20, 256))[3] == "–"


def test_the_row_of_a_head_has_a_cell_for_each_column():
    row = {"accuracy": 98.03, "intra": 9.09, "inter": 41.58, "fisher": 0.02678, "seconds": 7.94}
    made = HeadResult("softmax", pathlib.Path(), torch.nn.Identity(), HEADS["softmax"](), torch.eye(3), row, {})
    assert format_head(made) == ["softmax", "98.0", "9.1", "41.6", "0.0268", "7.9"]
