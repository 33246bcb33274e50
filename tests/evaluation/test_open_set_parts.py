import pytest
import torch

from hypersphere.evaluation import ASNorm, all_pairs, identification, open_set, open_set_report, retrieval, roc_curve
from hypersphere.evaluation.query_gallery import QueryGallery
from tests.evaluation.test_open_set_report import clusters


@pytest.fixture
def apart():
    """A third of the images are queries, the others the gallery; two identities have no image in the gallery."""
    features, labels = clusters(classes=12)
    queries = torch.arange(len(labels)) % 3 == 0
    strange = torch.isin(labels, labels.unique()[:2])
    return features, labels, queries, ~queries & ~strange


def test_queries_are_searched_in_the_gallery_only(apart):
    features, labels, q, g = apart
    report = open_set_report(features, labels, queries=q, gallery=g)
    known = q & torch.isin(labels, labels[g])
    plain = identification(features[known], labels[known], features[g], labels[g])
    assert report.rank(1) == plain.rank(1)
    assert report.identification.identities == 10
    found = retrieval(features[q], labels[q], features[g], labels[g])
    assert report.retrieval.mean_average_precision == found.mean_average_precision
    strangers = open_set(features[q], labels[q], features[g], labels[g])
    assert report.detection.tpir(0.25) == strangers.tpir(0.25)
    cos = torch.nn.functional.normalize(features[q].double()) @ torch.nn.functional.normalize(features[g].double()).T
    roc = roc_curve(cos.flatten(), (labels[q][:, None] == labels[g]).flatten())
    assert float(report.eer) == pytest.approx(float(roc.eer), abs=1e-9)
    assert (report.pairs.roc.positives, report.pairs.roc.negatives) == (roc.positives, roc.negatives)


def test_everything_as_query_and_gallery_is_the_report_without(apart):
    features, labels, *_ = apart
    every = torch.ones_like(labels, dtype=torch.bool)
    whole, plain = open_set_report(features, labels, queries=every, gallery=every), open_set_report(features, labels)
    assert whole.numbers() == plain.numbers()


def test_half_is_enrolled_where_the_gallery_knows_everyone():
    features, labels = clusters(classes=10)
    q = torch.arange(len(labels)) % 2 == 0
    report = open_set_report(features, labels, queries=q, gallery=~q)
    assert report.detection is not None
    mated = int(report.detection.ranking.mated.sum())
    assert 0 < mated < int(q.sum())
    assert len(report.detection.ranking.rank) == int(q.sum())


def test_another_score_reaches_every_part():
    features, labels = clusters(classes=12)
    score = ASNorm(torch.randn(40, 12), top=20)
    report = open_set_report(features, labels, score=score, categories=["a", "b"] * 36)
    matrix = score(features, features)
    upper = torch.ones_like(matrix, dtype=torch.bool).triu(1)
    roc = roc_curve(matrix[upper], (labels[:, None] == labels)[upper])
    assert float(report.eer) == pytest.approx(float(roc.eer), abs=1e-9)
    matrix.fill_diagonal_(-torch.inf)
    first = labels[matrix.argmax(1)] == labels
    assert float(report.rank(1)) == pytest.approx(first.double().mean().item())
    assert {f.unit for f in report.figures() if f.name.startswith("threshold")} == {"score"}
    assert not [f for f in report.figures() if f.name.startswith("angle")]
    assert report.calibration.slope > 0
    assert int(report.pairs.same_histogram.sum()) == report.pairs.roc.positives


def test_pairs_of_two_queries_do_not_count(apart):
    features, labels, q, g = apart
    counted = all_pairs(features, labels, sides=QueryGallery(q, g), chunk=5)
    for errors in (counted.same, counted.false_accepts):
        assert ((q[errors.first] & g[errors.second]) | (g[errors.first] & q[errors.second])).all()
