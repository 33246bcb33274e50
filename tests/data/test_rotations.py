import numpy as np
import pytest
import torch

from hypersphere.data import InMemory, OfClasses, Rotations

from .files import random

IMAGES = InMemory(torch.from_numpy(random(5, 3, 4, 4)), torch.tensor([1, 0, 2, 1, 1]), ("a", "b", "c"))


def test_every_class_becomes_four():
    turned = Rotations(IMAGES)
    assert turned.classes[:5] == ("a", "b", "c", "a at 90°", "b at 90°")
    assert turned.classes[8:] == ("c at 180°", "a at 270°", "b at 270°", "c at 270°")
    for k in range(4):
        for i in range(5):
            image, label = turned[5 * k + i]
            assert np.array_equal(image.numpy(), np.rot90(IMAGES.data[i].numpy(), k, (1, 2)))
            assert label == int(IMAGES.labels[i]) + 3 * k


def test_batches_are_its_samples():
    turned = Rotations(IMAGES)
    index = torch.tensor([19, 0, 7])
    images, labels = turned.batch(index)
    assert torch.equal(images, torch.stack([turned[i][0] for i in index.tolist()]))
    assert labels.tolist() == [turned[i][1] for i in index.tolist()]
    assert turned.data.dtype == torch.uint8


def test_a_part_of_a_dataset_is_rotated():
    turned = Rotations(OfClasses(IMAGES, [2, 1]))
    assert turned.classes[:4] == ("c", "b", "c at 90°", "b at 90°")
    assert turned.labels[:4].tolist() == [1, 0, 1, 1]


def test_refuses_oblong_images():
    with pytest.raises(ValueError, match=r"dataset must hold square images .* got \(2, 1, 3, 4\)"):
        Rotations(InMemory(torch.zeros(2, 1, 3, 4), torch.tensor([0, 0]), ("a",)))
