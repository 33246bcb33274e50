import pytest

from hypersphere.config import Call, call, encode
from hypersphere.data import Affine, Flip
from hypersphere.training import FitSettings


def test_augmentations_in_any_form():
    one, two = call(Affine), call(Flip)
    assert FitSettings().augmentations == ()
    assert FitSettings(augment=one).augmentations == (one,)
    assert FitSettings(augment=(one, two)).augmentations == (one, two)


def test_options_of_the_source():
    assert FitSettings(depth=2, labels="who").opening == {"depth": 2, "labels": "who"}


def test_they_can_be_written_and_read():
    written = encode(FitSettings(size=(40, 80)), defaults=True)
    assert written["size"] == [40, 80]
    assert written["backbone"]["call"] == "sphereface10"
    assert Call(FitSettings, {"size": (40, 80)}).build() == FitSettings(size=(40, 80))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"validation": 1.0}, r"validation must lie in \[0, 1\)"),
        ({"least_images": 0}, "least_images must be an integer ≥ 1"),
        ({"batch_size": 1}, "batch_size must be an integer ≥ 2"),
        ({"head_first": -1}, "head_first must be an integer ≥ 0"),
        ({"workers": 999}, "workers must lie in 0 … 256"),
        ({"channels": 2}, "channels must be 1 or 3"),
        ({"size": (2,)}, "size must be one number or height and width, each ≥ 4"),
    ],
)
def test_refuses(wrong, message):
    with pytest.raises(ValueError, match=message):
        FitSettings(**wrong)
