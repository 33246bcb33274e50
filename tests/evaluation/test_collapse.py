import numpy as np
import pytest
import torch
from sklearn.neighbors import NearestCentroid

from hypersphere.evaluation import neural_collapse
from tests.evaluation.contracts import ReportContract


class TestCollapseReport(ReportContract):
    @pytest.fixture
    def report(self):
        return neural_collapse(torch.randn(60, 5), torch.arange(60) % 3, torch.randn(3, 5), torch.randn(3))


def brute(x, labels, weight, bias):
    """Compute the measures by their published definitions."""
    x, labels, weight, bias = (v.double().numpy() for v in (x, labels, weight, bias))
    classes = np.unique(labels)
    means = np.stack([x[labels == c].mean(0) for c in classes])
    m = means - means.mean(0)
    within = sum(
        np.outer(v - means[list(classes).index(c)], v - means[list(classes).index(c)])
        for v, c in zip(x, labels, strict=True)
    ) / len(x)
    between = sum(np.outer(v, v) for v in m) / len(m)
    nc1 = np.trace(within @ np.linalg.pinv(between, rcond=1e-10)) / len(m)
    norms = np.linalg.norm(m, axis=1)
    cos = [m[i] @ m[j] / (norms[i] * norms[j]) for i in range(len(m)) for j in range(len(m)) if i != j]
    nc2 = np.mean(np.abs(np.array(cos) + 1 / (len(m) - 1)))
    nc3 = np.linalg.norm(weight / np.linalg.norm(weight) - m / np.linalg.norm(m)) ** 2
    nearest = NearestCentroid().fit(x, labels).predict(x)
    nc4 = np.mean((x @ weight.T + bias).argmax(1) != nearest)
    return nc1, norms.std() / norms.mean(), nc2, nc3, nc4


@pytest.mark.parametrize(("classes", "dim"), [(2, 2), (3, 5), (6, 4), (4, 10)])
def test_measures_are_those_of_the_definitions(classes, dim):
    labels = torch.cat([torch.arange(classes), torch.randint(classes, (80,))])
    x = torch.randn(classes, dim)[labels] * 3 + torch.randn(len(labels), dim)
    weight, bias = torch.randn(classes, dim), torch.randn(classes)
    report = neural_collapse(x, labels, weight, bias)
    values = (report.nc1, report.nc2_norms, report.nc2_angles, report.nc3, report.nc4)
    assert values == pytest.approx(brute(x, labels, weight, bias), rel=1e-6)


def test_order_changes_nothing():
    x, labels, order = torch.randn(50, 6), torch.randint(4, (50,)), torch.randperm(50)
    a, b = neural_collapse(x, labels).numbers(), neural_collapse(x[order], labels[order]).numbers()
    assert a == pytest.approx(b, rel=1e-9)


def test_labels_may_lack_classes_of_the_classifier():
    x, labels = torch.randn(40, 6), torch.tensor([1, 4]).repeat(20)
    weight = torch.randn(6, 6)
    assert neural_collapse(x, labels, weight).nc3 == pytest.approx(
        neural_collapse(x, (labels == 4).long(), weight[[1, 4]]).nc3
    )


def test_without_a_classifier_two_measures_remain():
    report = neural_collapse(torch.randn(30, 4), torch.arange(30) % 3)
    assert (report.nc3, report.nc4) == (None, None)
    assert list(report.numbers()) == ["NC1", "NC2 norms", "NC2 angles"]


def test_refuses():
    x, labels = torch.randn(6, 3), torch.tensor([0, 1, 2, 0, 1, 2])
    with pytest.raises(ValueError, match="at least two classes"):
        neural_collapse(x, torch.zeros(6).long())
    with pytest.raises(ValueError, match="labels must be an integer for each of 6 features"):
        neural_collapse(x, labels[:-1])
    with pytest.raises(ValueError, match="features must be finite"):
        neural_collapse(x / 0, labels)
    with pytest.raises(ValueError, match="weight must have a row of length 3 for each label"):
        neural_collapse(x, labels, torch.rand(2, 3))
