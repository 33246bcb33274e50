import pathlib

import torch

from hypersphere.cli.demo.demo_page import answer_row, head_row
from hypersphere.cli.demo.digit_gallery import DigitAnswers
from hypersphere.cli.demo.four_heads import HEADS, HeadResult


def test_a_stranger_cannot_be_named_rightly():
    assert answer_row(DigitAnswers("3", "enrolled", 36, 35, 0, 1)) == ["3", "enrolled", "36", "35", "0", "1"]
    assert answer_row(DigitAnswers("7", "stranger", 35, 0, 3, 32))[3] == "–"


def test_the_row_of_a_head_has_a_cell_for_each_column():
    row = {"accuracy": 98.03, "intra": 9.09, "inter": 41.58, "fisher": 0.02678, "seconds": 7.94}
    made = HeadResult("softmax", pathlib.Path(), torch.nn.Identity(), HEADS["softmax"](), torch.eye(3), row, {})
    assert head_row(made) == ["softmax", "98.0", "9.1", "41.6", "0.0268", "7.9"]
