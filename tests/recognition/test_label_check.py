import csv

import pytest
import torch

from hypersphere.recognition import check_labels, write_cleaned_table
from tests.recognition.test_grouping import CALIBRATION, people


# Without a calibration, log-odds are estimated from the wrong labels too. They are weaker, so recall is lower.
@pytest.mark.parametrize(("calibration", "recall"), [(None, 0.9), (CALIBRATION, 0.95)])
def test_shuffled_labels_are_found(calibration, recall):
    features, truth = people(40, 8, noise=0.5)
    draw = torch.Generator().manual_seed(5)
    wrong = torch.randperm(len(truth), generator=draw)[:32]
    labels = truth.clone()
    labels[wrong] = labels[wrong[torch.randperm(32, generator=draw)]]
    really = {i for i in wrong.tolist() if labels[i] != truth[i]}
    report = check_labels(features, [f"person {i}" for i in labels.tolist()], calibration=calibration)
    found = {one.sample for one in report.suspicions}
    assert len(found & really) >= recall * len(really)
    assert len(found & really) >= 0.95 * len(found)
    if calibration is None:
        return  # for this case benchmarks/reports/label_check.md measures the proposed names; none are promised
    named = [one for one in report.suspicions if one.sample in really]
    right = sum(one.better == f"person {int(truth[one.sample])}" for one in named)
    assert right >= 0.9 * len(named)


def test_clean_labels_are_left_alone():
    features, truth = people(20, 5, noise=0.4)
    report = check_labels(features, [str(i) for i in truth.tolist()])
    assert report.suspicions == ()
    assert report.same_identity == ()
    assert "0 of 100 labels may be wrong" in str(report)


def test_one_person_under_two_names_and_twins():
    features, truth = people(10, 6, noise=0.4)
    labels = [str(i) for i in truth.tolist()]
    labels[:3] = ["also 0"] * 3
    twin = torch.cat([features, features[20:21]])
    report = check_labels(twin, [*labels, "9"], calibration=CALIBRATION)
    assert [set(pair[:2]) for pair in report.same_identity] == [{"also 0", "0"}]
    assert [pair[:2] for pair in report.duplicates] == [(20, 60)]
    assert report.suspicions[0].sample == 60
    assert report.suspicions[0].better == labels[20]


def test_of_two_that_contradict_each_other_the_claimed_one_is_suspicious():
    features, truth = people(6, 5, noise=0.3)
    labels = [str(i) for i in truth.tolist()]
    labels[0] = labels[10] = "pair"  # one sample of person 0 and one of person 2
    features[10] = torch.randn(32, generator=torch.Generator().manual_seed(9))  # looks like nobody
    report = check_labels(features, labels, calibration=CALIBRATION)
    assert [one.sample for one in report.suspicions] == [0]


def test_the_cleaned_table_leaves_suspicions_out(tmp_path):
    features, truth = people(5, 5, noise=0.3)
    labels = [str(i) for i in truth.tolist()]
    labels[3] = "4"
    report = check_labels(features, labels, [f"{i}.png" for i in range(25)], CALIBRATION)
    assert write_cleaned_table(report, tmp_path / "cleaned.csv") == 24
    with open(tmp_path / "cleaned.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert "3.png" not in {row["path"] for row in rows}
    assert list(rows[0]) == ["path", "label"]


def test_numbers_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="one entry for each of 3 features"):
        check_labels(torch.eye(3), ["a"])
