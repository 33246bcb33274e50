import pytest
import torch

from hypersphere.data import Compose, Digits, InMemory
from hypersphere.training.config import Data
from hypersphere.training.datasets import augmentation, normalization, prepared, read, split, training_part


def test_reads_resizes_and_colours() -> None:
    digits = read(Data("Digits", size=12, channels=3, classes=4), train=True)
    assert digits.data.shape[1:] == (3, 12, 12)
    assert digits.data.dtype == torch.uint8
    assert digits.labels.unique().tolist() == [0, 1, 2, 3]
    plain = read(Data("Digits"), train=False)
    assert torch.equal(plain.data, Digits(train=False).data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (Data("Nothing"), "data.name must be one of Digits, MNIST"),
        (Data("Digits", classes=11), "data.classes must lie in 2 … 10, got 11"),
    ],
)
def test_refuses(data: Data, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read(data, train=True)


def test_fewer_samples_and_imbalance() -> None:
    digits = read(Data("Digits"), train=True)
    few = training_part(Data(per_class=5), digits)
    assert torch.bincount(few.labels).tolist() == [5] * 10
    assert torch.equal(few.data[few.labels == 3], digits.data[digits.labels == 3][:5])
    counts = torch.bincount(digits.labels)
    single = torch.bincount(training_part(Data(imbalance="single"), digits).labels)
    assert single[0] == round(0.1 * counts[0].item())
    assert torch.equal(single[1:], counts[1:])
    multiple = torch.bincount(training_part(Data(imbalance="multiple"), digits).labels)
    assert (multiple.diff() > 0).all()


def test_rotated_classes_are_new_classes() -> None:
    digits = read(Data("Digits"), train=True)
    turned = training_part(Data(rotations=True), digits)
    assert len(turned.classes) == 40
    assert len(turned) == 4 * len(digits)
    assert torch.equal(turned.data[len(digits)], digits.data[0].rot90(1, (1, 2)))
    assert turned.labels[len(digits)] == digits.labels[0] + 10


def test_a_validation_part_is_disjoint_and_always_the_same() -> None:
    data = torch.arange(100, dtype=torch.uint8).reshape(100, 1, 1, 1)
    whole = InMemory(data, torch.arange(100) % 10, [str(c) for c in range(10)])
    train, held = split(Data(validation=0.2), whole)
    assert held is not None
    assert len(held) == 20
    assert sorted([*train.data.flatten().tolist(), *held.data.flatten().tolist()]) == list(range(100))
    assert torch.equal(split(Data(validation=0.2), whole)[0].data, train.data)
    train, held = split(Data(validation=0.3), whole, by_class=True)
    assert held is not None
    assert len(train.classes) == 7
    assert len(held.classes) == 3
    assert not set(train.classes) & set(held.classes)
    assert held.labels.unique().tolist() == [0, 1, 2]
    assert split(Data(), whole) == (whole, None)
    with pytest.raises(ValueError, match=r"data.validation must lie in \[0, 1\), got 1.0"):
        split(Data(validation=1.0), whole)


@pytest.mark.parametrize("kind", ["unit", "deviation", "pixel_mean", "faces"])
def test_normalizations_by_hand(kind: str) -> None:
    digits = read(Data("Digits"), train=True)
    pixels = digits.data.double()
    expected = {
        "unit": pixels / 255,
        "deviation": (pixels - pixels.mean()) / pixels.std(correction=0),
        "pixel_mean": (pixels - pixels.mean(0)) / 128,
        "faces": (pixels - 127.5) / 128,
    }[kind]
    found = prepared(digits.data, normalization(Data(normalize=kind), digits))  # type: ignore[arg-type]
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-5)


def test_nothing_to_do_is_none() -> None:
    digits = read(Data("Digits"), train=True)
    assert normalization(Data(normalize="none"), digits) is None
    assert augmentation(Data(), None) is None
    assert prepared(digits.data, None) is digits.data


@pytest.mark.parametrize("kind", ["crop_flip", "crop", "mirror", "affine"])
def test_augmentation_then_normalization(kind: str) -> None:
    digits = read(Data("Digits"), train=True)
    augment = augmentation(Data(augment=kind), normalization(Data(normalize="unit"), digits))  # type: ignore[arg-type]
    assert isinstance(augment, Compose)
    out = augment(digits.data[:4], torch.rand(4, augment.draws(digits.data.shape[1:])).double())
    assert out.dtype == torch.float32
    assert out.shape == (4, 1, 8, 8)
    assert 0 <= out.min() <= out.max() <= 1
