import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hypersphere.data import RandomErasing

from .test_augment import uniforms


@settings(max_examples=40)
@given(st.integers(1, 20), st.integers(1, 20), st.integers(0, 500))
def test_is_one_rectangle_of_the_drawn_size(h, w, seed):
    erase = RandomErasing(0.7, fill=9)
    u = uniforms(8, erase, (2, h, w), seed)
    out = erase(torch.zeros(8, 2, h, w, dtype=torch.uint8), u)
    for found, (chosen, area, ratio, row, column) in zip(out, u.tolist(), strict=True):
        share, aspect = 0.02 + 0.38 * area, math.exp(math.log(0.3) + (math.log(1 / 0.3) - math.log(0.3)) * ratio)
        height, width = (
            min(round(math.sqrt(share * h * w * aspect)), h),
            min(round(math.sqrt(share * h * w / aspect)), w),
        )
        expected = torch.zeros(2, h, w, dtype=torch.uint8)
        if chosen < 0.7:
            top, left = int(row * (h - height + 1)), int(column * (w - width + 1))
            expected[:, top : top + height, left : left + width] = 9
        assert torch.equal(found, expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"probability": 1.5}, "probability must lie in 0 … 1"),
        ({"fill": math.nan}, "fill be finite"),
        ({"area": (0.5, 0.2)}, "area must be two numbers in ascending order within 0 … 1"),
        ({"area": (0.5, 1.2)}, "area must be two numbers"),
        ({"ratio": (0.0, 1.0)}, "ratio must be two numbers"),
        ({"ratio": (math.nan, 1.0)}, "ratio must be two numbers"),
    ],
)
def test_refuses(options, message):
    with pytest.raises(ValueError, match=message):
        RandomErasing(**options)
