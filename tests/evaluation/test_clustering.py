import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics

from hypersphere.evaluation import clustering

LABELINGS = st.integers(1, 30).flatmap(
    lambda n: st.tuples(
        st.lists(st.integers(0, 5), min_size=n, max_size=n), st.lists(st.integers(-1, 5), min_size=n, max_size=n)
    )
)


def brute_force(labels, groups):
    """All pairs and all samples one by one; an unassigned sample is a group of its own."""
    groups = [("alone", i) if group == -1 else group for i, group in enumerate(groups)]
    pairs = list(itertools.combinations(range(len(labels)), 2))
    same = {p for p in pairs if labels[p[0]] == labels[p[1]]}
    together = {p for p in pairs if groups[p[0]] == groups[p[1]]}
    precision, recall = [], []
    for label, group in zip(labels, groups, strict=True):
        own = {i for i, other in enumerate(labels) if other == label}
        mates = {i for i, other in enumerate(groups) if other == group}
        precision.append(len(own & mates) / len(mates))
        recall.append(len(own & mates) / len(own))
    return {
        "pairwise_precision": len(same & together) / len(together) if together else 1.0,
        "pairwise_recall": len(same & together) / len(same) if same else 1.0,
        "bcubed_precision": sum(precision) / len(labels),
        "bcubed_recall": sum(recall) / len(labels),
        "mixed_groups": sum(
            len({label for label, other in zip(labels, groups, strict=True) if other == group}) > 1
            for group in set(groups)
        ),
    }, groups


@given(LABELINGS)
def test_agrees_with_brute_force_and_scikit_learn(both):
    labels, groups = both
    report = clustering(torch.tensor(labels), torch.tensor(groups))
    expected, alone = brute_force(labels, groups)
    for name, value in expected.items():
        assert getattr(report, name) == pytest.approx(value, abs=1e-12), name
    numbers = [list(dict.fromkeys(alone)).index(group) for group in alone]
    assert report.ari == pytest.approx(metrics.adjusted_rand_score(labels, numbers), abs=1e-9)
    assert report.nmi == pytest.approx(metrics.normalized_mutual_info_score(labels, numbers), abs=1e-9)
    assert report.unassigned == groups.count(-1)
    assert report.groups == len(set(groups) - {-1})


def test_an_identity_is_merged_if_another_one_has_the_same_main_group():
    # Identities 0 and 1 share a group. A single face of identity 2 in it does not merge 2 with them.
    labels = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2])
    groups = torch.tensor([5, 5, 5, 5, 5, 5, 6, 6])
    report = clustering(labels, groups)
    assert (report.merged_identities, report.mixed_groups) == (2, 1)


def test_a_stranger_in_a_group_counts_as_a_merged_identity():
    assert clustering(torch.tensor([0, 0, 9]), torch.tensor([1, 1, 1])).merged_identities == 2
    assert clustering(torch.tensor([0, 0, 9]), torch.tensor([1, 1, -1])).merged_identities == 0


def test_labels_and_groups_of_other_shapes_are_refused():
    with pytest.raises(ValueError, match="must have the same shape"):
        clustering(torch.tensor([0, 1]), torch.tensor([0]))
    with pytest.raises(ValueError, match="must be integers"):
        clustering(torch.tensor([0.5, 1]), torch.tensor([0, 1]))
    with pytest.raises(ValueError, match="n ≥ 1"):
        clustering(torch.empty(0, dtype=torch.long), torch.empty(0, dtype=torch.long))


def test_the_table_names_every_measure():
    text = str(clustering(torch.tensor([0, 0, 1]), torch.tensor([0, 0, -1])))
    for word in ("pairwise F", "B-cubed F", "NMI", "ARI", "wrongly merged identities", "unassigned samples"):
        assert word in text
