import itertools
import math

import numpy as np
import pytest
import torch

from hypersphere.evaluation import clustering
from hypersphere.evaluation.score_calibration import LogisticCalibration
from hypersphere.recognition import Constraints, group_features, membership
from hypersphere.recognition.grouping import EVIDENCE_GROWTH, build_neighbor_graph

CALIBRATION = LogisticCalibration(slope=30.0, offset=-15.0)


def people(count, each, noise=0.3, dim=32, seed=0):
    draw = torch.Generator().manual_seed(seed)
    labels = torch.arange(count).repeat_interleave(each)
    return torch.randn(count, dim, generator=draw)[labels] + noise * torch.randn(
        len(labels), dim, generator=draw
    ), labels


def brute_force(features, calibration, prior, photographs):
    """Average linkage over all pairs of samples, without a graph, running sums or a heap."""
    unit = torch.nn.functional.normalize(features.double()).numpy()
    groups = [[i] for i in range(len(unit))]
    while True:
        best, pair = 0.0, None
        for a, b in itertools.combinations(range(len(groups)), 2):
            if {photographs[i] for i in groups[a]} & {photographs[i] for i in groups[b]}:
                continue
            cosines = [float(unit[i] @ unit[j]) for i in groups[a] for j in groups[b]]
            odds = (calibration.slope * np.mean(cosines) + calibration.offset) * len(cosines) ** EVIDENCE_GROWTH
            odds += math.log(prior / (1 - prior))
            if odds > best:
                best, pair = odds, (a, b)
        if pair is None:
            return {frozenset(group) for group in groups if len(group) > 1}
        groups[pair[0]] += groups.pop(pair[1])


def as_sets(groups):
    return {frozenset((groups == number).nonzero().flatten().tolist()) for number in groups.unique() if number >= 0}


@pytest.mark.parametrize("seed", range(5))
def test_agrees_with_average_linkage_by_brute_force(seed):
    features, _ = people(5, 5, noise=0.75, seed=seed)
    photographs = [i // 2 for i in range(len(features))]
    found = group_features(features, CALIBRATION, Constraints(photographs), prior=0.05, neighbors=24)
    sets = as_sets(found)
    assert sets == brute_force(features, CALIBRATION, 0.05, photographs)
    assert sets  # otherwise nothing was compared


def test_finds_people_and_leaves_strangers_alone():
    features, labels = people(20, 6)
    strangers = torch.randn(30, 32, generator=torch.Generator().manual_seed(1))
    found = group_features(torch.cat([features, strangers]), CALIBRATION)
    report = clustering(torch.cat([labels, 100 + torch.arange(30)]), found)
    assert report.pairwise_f == 1
    assert (found[-30:] == -1).all()


def test_two_faces_of_one_photograph_are_two_people():
    features = torch.tensor([[1.0, 0.0], [1.0, 0.01], [1.0, 0.005]])
    found = group_features(features, CALIBRATION, Constraints(photographs=[7, 7, -1])).tolist()
    assert found[0] != found[1]
    assert len(set(group_features(features, CALIBRATION).tolist())) == 1


def test_fixed_groups_keep_their_members_and_never_merge():
    features = torch.cat([torch.tensor([[1.0, 0.0]]).expand(4, 2), torch.tensor([[-1.0, 0.0]])])
    found = group_features(features, CALIBRATION, Constraints(fixed=[5, 5, 9, -1, 5])).tolist()
    assert found[:3] == [5, 5, 9]
    assert found[4] == 5  # the user named it
    assert found[3] in (5, 9)


def test_a_rejected_sample_does_not_come_back():
    features = torch.tensor([[1.0, 0.0]]).expand(3, 2)
    free = group_features(features, CALIBRATION, Constraints(fixed=[3, 3, -1])).tolist()
    told = group_features(features, CALIBRATION, Constraints(fixed=[3, 3, -1], forbidden={(2, 3)})).tolist()
    assert free == [3, 3, 3]
    assert told == [3, 3, -1]


def test_nothing_and_one_sample():
    assert group_features(torch.empty(0, 4), CALIBRATION).tolist() == []
    assert group_features(torch.ones(1, 4), CALIBRATION).tolist() == [-1]


def test_order_does_not_matter():
    features, _ = people(8, 5, noise=0.7)
    order = torch.randperm(len(features), generator=torch.Generator().manual_seed(2))
    one, other = group_features(features, CALIBRATION), group_features(features[order], CALIBRATION)
    assert as_sets(one) == as_sets(torch.empty_like(other).scatter_(0, order, other))


def test_the_graph_has_each_edge_once():
    features, _ = people(6, 4)
    first, second, cosines = build_neighbor_graph(features, 5)
    assert (first < second).all()
    assert len(set(zip(first.tolist(), second.tolist(), strict=True))) == len(first)
    unit = torch.nn.functional.normalize(features.double())
    assert np.allclose(cosines, (unit[first] * unit[second]).sum(1).numpy(), atol=1e-6)


def test_membership_finds_the_one_who_does_not_belong():
    features, labels = people(2, 10)
    groups = labels.clone()
    groups[0] = 1
    sure = membership(features, groups, CALIBRATION)
    assert sure.argmin() == 0
    assert sure[0] < 0.01 < sure[1:].min()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"prior": 0.0}, "prior must be between 0 and 1"),
        ({"neighbors": 0}, "neighbors must be an integer"),
        ({"constraints": Constraints(photographs=[1])}, "photographs must have one number"),
        ({"constraints": Constraints(forbidden={(9, 0)})}, "forbidden must hold pairs"),
    ],
)
def test_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        group_features(torch.eye(3), CALIBRATION, **arguments)
    with pytest.raises(ValueError, match="must have a direction"):
        group_features(torch.zeros(2, 3), CALIBRATION)
