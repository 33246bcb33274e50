import pytest
import torch

from hypersphere.recognition import find_confusable_classes, mine_hard_negatives


def test_is_what_all_pairs_say():
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(60, 8, generator=generator), torch.randint(0, 7, (60,), generator=generator)
    found = mine_hard_negatives(x, y, 5)
    unit = torch.nn.functional.normalize(x.double(), dim=1)
    cos = unit @ unit.T
    for i in range(60):
        others = sorted((j for j in range(60) if y[j] != y[i]), key=lambda j: -cos[i, j])[:5]
        assert found.indices[i].tolist() == others
        assert torch.allclose(found.scores[i].double(), cos[i, others], atol=1e-6)


def test_a_sample_with_fewer_negatives_says_so():
    found = mine_hard_negatives(torch.randn(4, 3), torch.tensor([0, 0, 0, 1]), 3)
    assert found.indices[0].tolist() == [3, -1, -1]
    assert sorted(found.indices[3].tolist()) == [0, 1, 2]


def test_confusable_classes_are_neighbors_of_mean_directions():
    means = torch.eye(6)
    means[1] += 0.9 * means[0]
    x = (means.repeat_interleave(5, 0) + 0.01 * torch.randn(30, 6)) * torch.rand(30, 1).add(0.5)
    near = find_confusable_classes(x, torch.arange(6).repeat_interleave(5), 2)
    assert near[0, 0] == 1
    assert near[1, 0] == 0
    assert near.shape == (6, 2)
    assert all(c not in row for c, row in enumerate(near.tolist()))


def test_refuses():
    with pytest.raises(ValueError, match="k must be"):
        mine_hard_negatives(torch.eye(3), torch.arange(3), 0)
    with pytest.raises(ValueError, match="every class"):
        find_confusable_classes(torch.eye(2), torch.tensor([0, 2]), 1)
    with pytest.raises(ValueError, match="k must be"):
        find_confusable_classes(torch.eye(3), torch.arange(3), 3)
