import pytest
import torch
from torch.utils.data import TensorDataset

from hypersphere.data import Digits, InMemory, PicturePreprocessing
from hypersphere.training import Listed
from hypersphere.training.build import choose_normalizer
from hypersphere.training.datasets import as_samples, count_classes, is_stream, normalize_to_unit, resize_samples
from tests.training.own import Squares, Stream


def test_any_map_style_dataset_has_labels_and_batches() -> None:
    mine = as_samples(Squares(20))
    assert isinstance(mine, Listed)
    assert mine.labels.tolist() == Squares(20).answers.tolist()
    inputs, labels = mine.batch(torch.tensor([3, 1]))
    assert torch.equal(inputs, Squares(20).images[[3, 1]])
    assert labels.tolist() == Squares(20).answers[[3, 1]].tolist()
    assert mine[2][1] == mine.labels[2]
    assert list(mine.classes) == ["0", "1", "2", "3", "4"]


def test_labels_are_taken_from_where_a_dataset_has_them() -> None:
    class Targets(Squares):
        targets = [1] * 20
        classes = ("no", "yes")

    found = as_samples(Targets(20))
    assert found.labels.tolist() == [1] * 20
    assert tuple(found.classes) == ("no", "yes")
    digits = Digits()
    assert as_samples(digits) is digits


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        (3, r"train must be a dataset of \(input, label\) with a length, got int"),
        ([], "train must hold samples, got an empty dataset"),
        (InMemory(torch.zeros(0, 1), torch.zeros(0).long(), ["a"]), "train must hold samples"),
        (TensorDataset(torch.zeros(2, 1), torch.tensor([0, -1])), "labels must be integers ≥ 0, got -1"),
    ],
)
def test_refuses(dataset, message) -> None:
    with pytest.raises(ValueError, match=message):
        as_samples(dataset, "train")


def test_streams_say_their_classes() -> None:
    assert is_stream(Stream())
    assert is_stream(iter([]))
    assert not is_stream(Squares(2))
    assert count_classes(Stream()) == 5
    assert count_classes(Digits()) == 10
    with pytest.raises(ValueError, match="so it must have an attribute classes or num_classes"):
        count_classes(object())


@pytest.mark.parametrize("kind", ["unit", "deviation", "faces", "pixel_mean"])
def test_normalizations_by_hand(kind: str) -> None:
    digits = Digits()
    pixels = digits.data.double()
    base = PicturePreprocessing(size=(8, 8), channels=1, mean=0.0, std=1.0)
    expected = {
        "unit": pixels / 255,
        "deviation": (pixels - pixels.mean()) / pixels.std(correction=0),
        "faces": (pixels - 127.5) / 128,
        "pixel_mean": (pixels - pixels.mean(0)) / 128,
    }[kind]
    found = choose_normalizer(kind, base, digits).normalize(digits.data)
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-5)


def test_images_at_another_size_and_in_colour() -> None:
    digits = Digits()
    plain = InMemory(digits.data, digits.labels, digits.classes)
    wanted = PicturePreprocessing(size=(12, 12), channels=3, mean=0.0, std=1.0)
    large = resize_samples(plain, wanted)
    assert large.data.shape[1:] == (3, 12, 12)
    assert large.data.dtype == torch.uint8
    assert resize_samples(plain, wanted) is large


def test_pixels_become_inputs_between_0_and_1():
    stored = torch.tensor([[[[0, 51], [102, 255]]]], dtype=torch.uint8)
    unit = PicturePreprocessing(size=(2, 2), channels=1, mean=0.0, std=1.0)
    expected = torch.tensor([[[[0.0, 0.2], [0.4, 1.0]]]])
    torch.testing.assert_close(normalize_to_unit(stored, unit, "Own"), expected)
    assert normalize_to_unit(expected, None, "Own") is expected


@pytest.mark.parametrize("value", [-0.1, 1.5])
def test_generative_tasks_refuse_other_values(value):
    with pytest.raises(ValueError, match=r"inputs must lie in \[0, 1\] for the task Own: set normalize=unit"):
        normalize_to_unit(torch.full((1, 1, 2, 2), value), None, "Own")
