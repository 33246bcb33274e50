import pytest
import sklearn.metrics
import torch
from hypothesis import given
from hypothesis import strategies as st

from hypersphere.evaluation import distractor_identification, verification
from tests.evaluation.contracts import ReportContract


class TestDistractorReport(ReportContract):
    @pytest.fixture
    def report(self):
        return distractor_identification(torch.randn(10, 8), torch.arange(10) // 2, torch.randn(500, 8))

    def test_sizes_are_powers_of_ten_and_all(self, report):
        assert report.sizes == (10, 100, 500)

    def test_names_of_rates_contain_their_far(self, report):
        assert [name for name in report.numbers() if "TAR" in name] == ["TAR@FAR=1e-3"]  # 5,000 different pairs


def brute_distractors(features, ids, distractors, size):
    unit = lambda x: torch.nn.functional.normalize(x.double(), dim=-1)
    ranks = []
    for i in range(len(ids)):
        for j in range(len(ids)):
            if i != j and ids[i] == ids[j]:
                mate = (unit(features[i]) * unit(features[j])).sum().round(decimals=10)
                others = (unit(distractors[:size]) @ unit(features[i])).round(decimals=10)
                ranks.append(1 + int((others >= mate).sum()))
    return ranks


@given(st.data())
def test_ranks_agree_with_loops_over_distractors(data):
    d, n, m = data.draw(st.integers(1, 3)), data.draw(st.integers(2, 7)), data.draw(st.integers(1, 20))
    entry = st.sampled_from([-1.0, 0.0, 1.0, 2.0])
    features, distractors = (
        torch.tensor(data.draw(st.lists(entry, min_size=k * d, max_size=k * d))).view(k, d) for k in (n, m)
    )
    ids = torch.tensor(
        data.draw(st.lists(st.integers(0, 2), min_size=n, max_size=n).filter(lambda v: len(set(v)) < len(v)))
    )
    sizes = sorted({data.draw(st.integers(1, m)), m})
    report = distractor_identification(features, ids, distractors, sizes, chunk=data.draw(st.integers(1, 25)))
    assert [sorted(row) for row in report.ranks.tolist()] == [
        sorted(brute_distractors(features, ids, distractors, s)) for s in sizes
    ]
    ranks = brute_distractors(features, ids, distractors, m)
    assert report.rank(2) == pytest.approx(sum(r <= 2 for r in ranks) / len(ranks))


def test_more_distractors_are_never_easier():
    report = distractor_identification(torch.randn(20, 4), torch.arange(20) // 4, torch.randn(2000, 4))
    rates = [report.rank(1, size) for size in report.sizes]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] > rates[-1]


def all_scores(features, ids, distractors):
    """Score each pair of mates once and each probe with each distractor, with loops, in float64."""
    unit = lambda x: torch.nn.functional.normalize(x.double(), dim=-1)
    x, y = unit(features), unit(distractors)
    mates = [x[i] @ x[j] for i in range(len(x)) for j in range(i) if ids[i] == ids[j]]
    others = [a @ b for a in x for b in y]
    return torch.stack([*mates, *others]).round(decimals=12), torch.arange(len(mates) + len(others)) < len(mates)


@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_tar_agrees_with_that_of_all_scores(chunk):
    features, ids, distractors = torch.randn(12, 3), torch.arange(12) // 4, torch.randn(90, 3)
    distractors[5:9] = features[0] * 2  # ties with the score of a mate
    report = distractor_identification(features, ids, distractors, [30, 90], chunk=chunk)
    for size in (30, 90):
        scores, same = all_scores(features, ids, distractors[:size])
        kept, roc = verification(scores, same), report.rocs[report.sizes.index(size)]
        assert roc.negatives == 12 * size
        for far in (0.3, 0.1, 0.01, 1 / (12 * size)):
            assert report.tar(far, size) == kept.tar(far)
        assert roc.auc == pytest.approx(sklearn.metrics.roc_auc_score(same.numpy(), scores.numpy()), abs=1e-12)
        assert roc.eer == pytest.approx(float(kept.eer), abs=1e-12)


def test_refuses():
    features, ids, distractors = torch.randn(4, 2), torch.tensor([0, 0, 1, 1]), torch.randn(5, 2)
    for sizes in ([], [0], [6]):
        with pytest.raises(ValueError, match="sizes must be between 1 and the number of distractors 5"):
            distractor_identification(features, ids, distractors, sizes)
    with pytest.raises(ValueError, match="some identity at least twice"):
        distractor_identification(features, torch.arange(4), distractors)
    with pytest.raises(ValueError, match="chunk must be an integer ≥ 1"):
        distractor_identification(features, ids, distractors, chunk=0)
    report = distractor_identification(features, ids, distractors, [5])
    with pytest.raises(ValueError, match=r"size must be one of \(5,\)"):
        report.rank(1, 3)
    with pytest.raises(ValueError, match="k must be an integer ≥ 1"):
        report.rank(0)
    with pytest.raises(ValueError, match=r"far=0.01 needs at least 100 different pairs to be resolved, got 20"):
        report.tar(0.01)
