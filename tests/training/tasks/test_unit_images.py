import pytest
import torch

from hypersphere.data import PicturePreprocessing
from hypersphere.training.tasks.unit_images import normalize_to_unit


def test_pixels_become_inputs_between_0_and_1():
    stored = torch.tensor([[[[0, 51], [102, 255]]]], dtype=torch.uint8)
    unit = PicturePreprocessing(size=(2, 2), channels=1, mean=0.0, std=1.0)
    expected = torch.tensor([[[[0.0, 0.2], [0.4, 1.0]]]])
    torch.testing.assert_close(normalize_to_unit(stored, unit, "Own"), expected)
    assert normalize_to_unit(expected, None, "Own") is expected


@pytest.mark.parametrize("value", [-0.1, 1.5])
def test_refuses_other_values(value):
    with pytest.raises(ValueError, match=r"inputs must lie in \[0, 1\] for the task Own: set normalize=unit"):
        normalize_to_unit(torch.full((1, 1, 2, 2), value), None, "Own")
