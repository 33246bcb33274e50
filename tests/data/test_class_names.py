import pytest

from hypersphere.data import class_names as names


@pytest.mark.parametrize(
    ("listed", "count"),
    [
        (names.CIFAR10_NAMES, 10),
        (names.CIFAR100_COARSE, 20),
        (names.CIFAR100_FINE, 100),
        (names.FASHION_NAMES, 10),
        (names.MODELNET10_NAMES, 10),
        (names.MODELNET40_NAMES, 40),
    ],
)
def test_every_class_has_its_own_name(listed, count):
    assert len(listed) == len(set(listed)) == count


def test_alphabetical_sets_are_in_order():
    for listed in (names.CIFAR100_COARSE, names.CIFAR100_FINE, names.MODELNET10_NAMES, names.MODELNET40_NAMES):
        assert list(listed) == sorted(listed)
