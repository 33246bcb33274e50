import pytest

from hypersphere.data import DataError, Record, Source


class Nothing(Source):
    def fetch(self, index):
        return b""


def test_records_are_needed():
    with pytest.raises(DataError, match="it holds no picture"):
        Nothing("it", [])


def test_classes_must_hold_every_label():
    with pytest.raises(ValueError, match="classes must hold every label of it, but 'b' is not among them"):
        Nothing("it", [Record("x", "b")], classes=("a",))


def test_the_order_of_classes():
    order = lambda *labels: Nothing("it", [Record("x", label) for label in labels]).classes
    assert order("10", "9", "-1") == ("-1", "9", "10")
    assert order("10", "9", "x") == ("10", "9", "x")


def test_no_splits():
    source = Nothing("it", [Record("x", "b")])
    assert source.splits == ()
    with pytest.raises(ValueError, match="split must be one of none of it, got 'train'"):
        source.part(split="train")
    assert len(source.part()) == 1
