import itertools

import pytest
import torch

from hypersphere.evaluation.query_gallery import QueryGallery, pair_counts, query_gallery


def test_counts_are_those_of_every_two():
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(4, (25,), generator=generator)
    sides = QueryGallery(torch.rand(25, generator=generator) < 0.5, torch.rand(25, generator=generator) < 0.6)
    same = different = 0
    for i, j in itertools.combinations(range(25), 2):
        if (sides.queries[i] and sides.gallery[j]) or (sides.queries[j] and sides.gallery[i]):
            assert sides.are_compared(i, j)
            same, different = same + int(labels[i] == labels[j]), different + int(labels[i] != labels[j])
        else:
            assert not sides.are_compared(i, j)
    assert pair_counts(sides, labels) == (same, different)


def test_nothing_said_is_everything():
    sides = query_gallery(None, None, torch.arange(4))
    assert sides.queries.all()
    assert sides.gallery.all()
    assert pair_counts(sides, torch.tensor([0, 0, 1, 1])) == (2, 4)


def test_refuses():
    mask = torch.ones(3, dtype=torch.bool)
    with pytest.raises(ValueError, match="queries and gallery must be given together"):
        query_gallery(mask, None, torch.arange(3))
    with pytest.raises(ValueError, match="gallery must be a boolean for each of 3 images"):
        query_gallery(mask, mask & False, torch.arange(3))
