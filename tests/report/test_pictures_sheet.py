"""Every picture is at its position on the sheet."""

import base64
import io

import numpy as np
import pytest
import torch

from hypersphere.report.pictures_sheet import make_sheet

PIL = pytest.importorskip("PIL.Image")


def opened(sheet):
    return PIL.open(io.BytesIO(base64.b64decode(sheet.address.partition(",")[2])))


@pytest.mark.parametrize("channels", [1, 3])
def test_small_pictures_are_exact(channels):
    images = torch.randint(0, 256, (7, 5, 4, channels)).to(torch.uint8)
    sheet = make_sheet(images, 100_000)
    whole = torch.from_numpy(np.array(opened(sheet))).long().view(sheet.rows * 5, sheet.columns * 4, channels)
    for i in range(7):
        top, left = 5 * (i // sheet.columns), 4 * (i % sheet.columns)
        assert torch.equal(whole[top : top + 5, left : left + 4], images[i].long())


def test_budget_is_kept_and_too_small_a_one_gives_none():
    images = torch.randint(0, 256, (60, 32, 32, 3)).to(torch.uint8)
    sheet = make_sheet(images, 30_000)
    assert len(sheet.address) < 30_100
    assert sheet.address.startswith("data:image/webp")
    assert make_sheet(images, 100) is None
