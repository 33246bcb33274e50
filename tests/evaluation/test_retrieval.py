import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score

from hypersphere.evaluation import CosineScore, QMagFace, retrieval
from tests.evaluation.contracts import ReportContract


def data(n=60, classes=7, dim=6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (n,), generator=generator)
    centers = torch.randn(classes, dim, generator=generator)
    return centers[labels] + 1.2 * torch.randn(n, dim, generator=generator), labels


def brute(scores, relevant, hidden):
    """Return AP, AP at R, R-precision and first rank of one query; irrelevant images come first at ties."""
    rows = sorted((-s, bool(r)) for s, r, h in zip(scores, relevant, hidden, strict=True) if not h)
    hits = [r for _, r in rows]
    total = sum(hits)
    if not total:
        return None
    precisions = [sum(hits[: i + 1]) / (i + 1) if hit else 0.0 for i, hit in enumerate(hits)]
    at_r = sum(precisions[:total]) / total
    return sum(precisions) / total, at_r, sum(hits[:total]) / total, hits.index(True) + 1


def check(report, scores, relevant, hidden):
    rows = [brute(*row) for row in zip(scores.tolist(), relevant.tolist(), hidden.tolist(), strict=True)]
    kept = torch.tensor([row for row in rows if row is not None], dtype=torch.float64)
    assert report.left_out == sum(row is None for row in rows)
    columns = (report.precision, report.precision_at_r, report.precision_r, report.first.double())
    torch.testing.assert_close(torch.stack(columns, 1), kept, atol=1e-12, rtol=0)


class TestRetrieval(ReportContract):
    @pytest.fixture
    def report(self):
        return retrieval(*data())


def test_a_search_of_its_own_set_agrees_with_brute_force_and_scikit_learn():
    features, labels = data()
    report = retrieval(features, labels, chunk=7)
    scores = CosineScore()(features, features)
    relevant, own = labels[:, None] == labels, torch.eye(len(labels), dtype=torch.bool)
    check(report, scores.round(decimals=12), relevant & ~own, own)
    for i in range(len(labels)):
        others = ~own[i]
        expected = average_precision_score(relevant[i][others].numpy(), scores[i][others].numpy())
        assert float(report.precision[i]) == pytest.approx(expected, abs=1e-12)


def test_ties_count_against_the_query():
    gallery, ids = torch.tensor([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]]), torch.tensor([0, 1, 0])
    report = retrieval(torch.tensor([[1.0, 0.0]]), torch.tensor([0]), gallery, ids)
    assert report.first.tolist() == [2]
    assert report.precision.tolist() == pytest.approx([(1 / 2 + 2 / 3) / 2])


def test_only_mates_of_the_same_camera_are_excluded():
    (queries, ids), (gallery, others) = data(20, 4), data(40, 4, seed=1)
    cameras, stored = torch.arange(20) % 3, torch.arange(40) % 3
    report = retrieval(queries, ids, gallery, others, query_cameras=cameras, gallery_cameras=stored, chunk=6)
    relevant = ids[:, None] == others
    hidden = relevant & (cameras[:, None] == stored)
    check(report, CosineScore()(queries, gallery).round(decimals=12), relevant & ~hidden, hidden)


def test_own_excludes_the_query_from_the_gallery():
    features, labels = data(30, 5)
    own = torch.arange(30).flip(0)
    report = retrieval(features, labels, features.flip(0), labels.flip(0), own=own)
    alone = retrieval(features, labels)
    torch.testing.assert_close(report.precision, alone.precision)


def test_another_score_is_used():
    features, labels = data()
    score = QMagFace(0.3, 0.5)
    own = torch.eye(len(labels), dtype=torch.bool)
    relevant = (labels[:, None] == labels) & ~own
    check(retrieval(features, labels, score=score), score(features, features).round(decimals=12), relevant, own)


def test_queries_without_a_mate_are_left_out():
    report = retrieval(torch.eye(3), torch.tensor([0, 1, 2]), torch.eye(3)[:1], torch.tensor([0]))
    assert (report.left_out, float(report.mean_average_precision)) == (2, 1.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gallery": torch.eye(3)}, "gallery and gallery_ids must be given together"),
        ({"chunk": 0}, "chunk must be an integer ≥ 1"),
        ({"query_ids": torch.tensor([0, 1, 2])}, "nothing to retrieve"),
        ({"query_cameras": torch.zeros(2, dtype=torch.long)}, "query_cameras must be an integer for each of 3"),
        ({"own": torch.zeros(3, dtype=torch.long)}, "own needs a gallery"),
    ],
)
def test_refuses(change, message):
    with pytest.raises(ValueError, match=message):
        retrieval(**{"queries": torch.eye(3), "query_ids": torch.tensor([0, 0, 1]), **change})


def test_recall_needs_a_rank():
    with pytest.raises(ValueError, match="k must be an integer ≥ 1"):
        retrieval(*data()).recall(0)


def test_numbers_do_not_depend_on_the_chunk():
    features, labels = data()
    assert np.allclose(retrieval(features, labels, chunk=1).precision, retrieval(features, labels).precision)


class ExactCosine(CosineScore):
    """A cosine score without estimates."""

    def estimate_rows(self, rows):
        return rows, 0.0


@pytest.mark.parametrize("spread", [0.01, 1.0, 30.0])
def test_estimated_and_exact_scores_give_equal_ranks(spread):
    """Scores that differ by less than the error of float32, exact ties, and more scores than are sorted at once."""
    g = torch.Generator().manual_seed(1)
    ids = torch.arange(3000) % 150
    features = torch.randn(150, 24, generator=g)[ids] + spread * torch.randn(3000, 24, generator=g)
    features[10:20] = features[:10] * 3  # ties across identities
    features[20:30] = features[:10] * (1 + 1e-7 * torch.randn(10, 24, generator=g))
    queries, own = features[:60], torch.arange(60)
    first, second = (
        retrieval(queries, ids[:60], features, ids, own=own, score=score) for score in (CosineScore(), ExactCosine())
    )
    assert CosineScore().estimate_rows(torch.eye(3, dtype=torch.float64))[1] > 0
    for column in ("precision", "precision_at_r", "precision_r", "first"):
        assert torch.equal(getattr(first, column), getattr(second, column)), column


def test_estimates_stay_within_their_error():
    g = torch.Generator().manual_seed(2)
    score = CosineScore()
    rows = score.rows(torch.randn(200, 512, generator=g))
    coarse, error = score.estimate_rows(rows)
    difference = (score.matrix(coarse, coarse).double() - score.matrix(rows, rows)).abs().max()
    assert 0 < difference <= error
