import pytest

from hypersphere.training.fitting.planning import seconds


@pytest.mark.parametrize(
    ("text", "wanted"), [("90s", 90), ("10m", 600), ("1.5h", 5400), ("1h30m", 5400), (45, 45), ("7", 7)]
)
def test_times(text, wanted):
    assert seconds(text) == wanted


@pytest.mark.parametrize("text", ["", "soon", "0m", "-3", "3d", "1h x", "m"])
def test_refuses(text):
    with pytest.raises(ValueError, match=r"budget must be a time such as 90s, 10m or 1.5h"):
        seconds(text)
