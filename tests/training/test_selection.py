import pytest
import torch

from hypersphere.data import Digits, ImbalancedMultiple, ImbalancedSingle, InMemory
from hypersphere.training import Selection, call
from hypersphere.training.selection import (
    hold_out,
    limit_measured_samples,
    select_first_classes,
    select_training_samples,
)


def test_only_the_first_classes() -> None:
    few = select_first_classes(Selection(classes=4), Digits())
    assert few.labels.unique().tolist() == [0, 1, 2, 3]
    assert len(few.classes) == 4
    whole = Digits()
    assert select_first_classes(Selection(), whole) is whole
    with pytest.raises(ValueError, match=r"samples.classes must lie in 2 … 10, got 11"):
        select_first_classes(Selection(classes=11), whole)


def test_fewer_samples_and_imbalance() -> None:
    digits = Digits()
    few = select_training_samples(Selection(per_class=5), digits)
    assert torch.bincount(few.labels).tolist() == [5] * 10
    assert torch.equal(few.data[few.labels == 3], digits.data[digits.labels == 3][:5])
    counts = torch.bincount(digits.labels)
    single = torch.bincount(select_training_samples(Selection(imbalance=call(ImbalancedSingle)), digits).labels)
    assert single[0] == round(0.1 * counts[0].item())
    assert torch.equal(single[1:], counts[1:])
    multiple = torch.bincount(select_training_samples(Selection(imbalance=call(ImbalancedMultiple)), digits).labels)
    assert (multiple.diff() > 0).all()


def test_rotated_classes_are_new_classes() -> None:
    digits = Digits()
    turned = select_training_samples(Selection(rotations=True), digits)
    assert len(turned.classes) == 40
    assert len(turned) == 4 * len(digits)
    data, labels = turned.batch(torch.tensor([len(digits)]))
    assert torch.equal(data[0], digits.data[0].rot90(1, (1, 2)))
    assert labels[0] == digits.labels[0] + 10


def test_a_validation_part_is_disjoint_and_always_the_same() -> None:
    data = torch.arange(100, dtype=torch.uint8).reshape(100, 1, 1, 1)
    whole = InMemory(data, torch.arange(100) % 10, [str(c) for c in range(10)])
    train, held = hold_out(Selection(validation=0.2), whole)
    assert len(held) == 20
    assert sorted([*train.data.flatten().tolist(), *held.data.flatten().tolist()]) == list(range(100))
    assert torch.equal(hold_out(Selection(validation=0.2), whole)[0].data, train.data)
    train, held = hold_out(Selection(validation=0.3), whole, by_class=True)
    assert len(train.classes) == 7
    assert len(held.classes) == 3
    assert not set(train.classes) & set(held.classes)
    assert held.labels.unique().tolist() == [0, 1, 2]
    assert hold_out(Selection(), whole) == (whole, None)


def test_some_are_measured_the_same_for_every_run() -> None:
    digits = Digits(train=False)
    few = limit_measured_samples(Selection(measured=50), digits)
    assert len(few) == 50
    assert torch.equal(few.data, limit_measured_samples(Selection(measured=50), digits).data)
    assert limit_measured_samples(Selection(measured=10**6), digits) is digits


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"validation": 1.0}, r"samples.validation must lie in \[0, 1\), got 1.0"),
        ({"classes": 1}, "samples.classes must be an integer ≥ 2 or none, got 1"),
        ({"per_class": 0}, "samples.per_class must be an integer ≥ 1 or none, got 0"),
        ({"measured": 0}, "samples.measured must be an integer ≥ 1 or none, got 0"),
    ],
)
def test_refuses(changes, message) -> None:
    with pytest.raises(ValueError, match=message):
        Selection(**changes)
