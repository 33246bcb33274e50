import json

import numpy as np
import pytest
import torch

from hypersphere.data.streams import TEMPLATE, Stream
from hypersphere.evaluation import ASNorm, all_pairs, identification, open_set, open_set_report, retrieval, roc_curve
from hypersphere.evaluation._identification import split_one_per_class
from hypersphere.evaluation.ranking import QueryGallery
from tests.evaluation.contracts import ReportContract
from tests.evaluation.test_all_pairs import brute


def clusters(classes=30, each=6, noise=1.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randperm(classes * each, generator=generator) % classes
    centers = torch.randn(classes, 12, generator=generator)
    return centers[labels] + noise * torch.randn(len(labels), 12, generator=generator), 3 * labels - 5


@pytest.fixture(scope="module")
def data():
    return clusters()


class TestOpenSetReport(ReportContract):
    @pytest.fixture
    def report(self, data):
        return open_set_report(
            *data,
            categories=["left", "right", "third"] * 60,
            quality=torch.arange(180.0),
        )

    def test_all_figures_are_reported(self, report):
        numbers = report.numbers()
        for name in (
            "EER",
            "TAR@FAR=1e-2",
            "threshold@FAR=1e-2",
            "angle@FAR=1e-2",
            "rank-1",
            "TPIR@FPIR=1e-1",
            "threshold@FPIR=1e-1",
            "mAP",
            "calibration ECE",
            "left: FAR at the threshold of FAR=1e-2",
            "third: rank-1",
            "FRR@FAR=1e-4 without the worst 10%",
        ):
            assert name in numbers, name

    def test_data_contains_curves_and_histograms(self, report):
        data = json.loads(json.dumps(report.data(points=50), allow_nan=False))
        assert set(data) == {"roc", "det", "cmc", "image_cmc", "histogram"}
        for curve in data.values():
            assert len({len(column) for column in curve.values()}) == 1
        assert len(data["roc"]["far"]) <= 50
        assert (data["roc"]["far"][0], data["roc"]["tar"][-1]) == (0, 1)
        assert data["roc"]["far"] == sorted(data["roc"]["far"])
        np.testing.assert_allclose(np.add(data["roc"]["tar"], data["det"]["frr"]), 1)
        assert sum(data["histogram"]["same"]) == pytest.approx(1)
        assert data["cmc"]["rate"][0] == float(report.rank(1))


def test_verification_uses_all_pairs(data):
    report, (_, scores, same) = open_set_report(*data), brute(*data)
    roc = roc_curve(scores, same)
    assert report.eer == pytest.approx(float(roc.eer), abs=1e-12)
    for far in (1e-2, 1e-3):
        point = roc.at_far(far)
        assert report.tar(far) == roc.tar[point].item()
        threshold = report.threshold(far=far)
        assert (scores[same] >= threshold).double().mean().item() == report.tar(far)
        assert (scores[~same] >= threshold).double().mean().item() <= far
        assert report.numbers()[f"angle@FAR={far:.0e}".replace("e-0", "e-")] == pytest.approx(
            np.degrees(np.arccos(threshold))
        )


def test_identification_excludes_the_probe_and_lists_confusions(data):
    features, labels = data
    report = open_set_report(features, labels)
    assert torch.equal(report.identification.ranks, identification(features, labels).ranks)
    unit = torch.nn.functional.normalize(features.double(), dim=1)
    cos = unit @ unit.T
    cos.fill_diagonal_(-2)
    answers = labels[cos.argmax(1)]
    wrong = [(a, b) for a, b in zip(labels.tolist(), answers.tolist(), strict=True) if a != b]
    assert float(report.rank(1)) == pytest.approx(1 - len(wrong) / len(labels))
    confused = report.list_confusions(1000)
    assert {(a, b): times for a, b, times in confused} == {pair: wrong.count(pair) for pair in set(wrong)}
    assert [times for *_, times in confused] == sorted((times for *_, times in confused), reverse=True)


def test_strangers_are_not_enrolled(data):
    features, labels = data
    labels = torch.cat([labels, torch.tensor([1000, 1001])])  # two identities with a single image are always strangers
    features = torch.cat([features, torch.randn(2, 12)])
    report = open_set_report(features, labels, seed=5)
    stream = Stream(5, TEMPLATE)
    several = labels.unique()[:30]
    enrolled = several[stream.permutation(30)[:15]]
    template = split_one_per_class(labels, stream)[0]
    template = template[torch.isin(labels[template], enrolled)]
    probes = torch.tensor([i for i in range(len(labels)) if i not in set(template.tolist())])
    expected = open_set(features[probes], labels[probes], features[template], labels[template])
    assert len(template) == 15
    for fpir in (0.1, 0.02):
        assert report.detection.tpir(fpir) == expected.tpir(fpir)
        assert report.threshold(fpir=fpir) == expected.threshold(fpir)
    assert int((~report.detection.ranking.mated).sum()) == 15 * 6 + 2


def test_categories_are_measured_at_the_common_threshold(data):
    features, labels = data
    names = ["ab"[int(label) % 2] for label in labels]
    report = open_set_report(features, labels, fars=(1e-2,), categories=names)
    threshold = report.threshold(far=1e-2)
    for category in report.categories:
        mine = torch.tensor([name == category.name for name in names])
        _, scores, same = brute(features[mine], labels[mine])
        assert float(category.far[1e-2]) == pytest.approx((scores[~same] >= threshold).double().mean().item())
        assert float(category.frr[1e-2]) == pytest.approx((scores[same] < threshold).double().mean().item())
        ranks = identification(features, labels).ranks[mine]
        assert float(category.rank_1) == pytest.approx((ranks == 1).double().mean().item())


def test_rejecting_bad_images_lowers_false_rejects():
    features, labels = clusters(noise=0.4)
    bad = torch.rand(len(labels)) < 0.1
    features[bad] += 4 * torch.randn(int(bad.sum()), 12)
    report = open_set_report(features, labels, quality=1 - bad.float(), fars=(1e-2,))
    rates = report.rejection(1e-2)
    assert [share for share, _ in rates] == [0.0, 0.05, 0.1, 0.2, 0.3]
    assert float(rates[0][1]) == pytest.approx(1 - report.tar(1e-2))
    assert rates[-1][1] < 0.5 * rates[0][1]


def test_calibration_and_evaluation_use_different_people(data):
    report = open_set_report(*data)
    assert report.calibrated.ece < 0.2
    assert report.calibrated.brier < 0.15
    low, high = report.calibration.probability(torch.tensor([0.0, 0.9]))
    assert low < 0.5 < high


def test_seeds_repeat_and_chunks_change_nothing(data):
    assert open_set_report(*data, chunk=7).json() == open_set_report(*data, chunk=500).json()
    assert open_set_report(*data, seed=1).json() != open_set_report(*data, seed=2).json()


def test_a_small_set_has_a_partial_report():
    report = open_set_report(torch.randn(4, 3), torch.tensor([0, 0, 1, 2]))
    assert report.detection is None
    assert report.calibrated is None
    with pytest.raises(ValueError, match="fpir needs two identities with several images"):
        report.threshold(fpir=0.1)


def test_the_threshold_may_be_infinite_if_the_best_pairs_tie():
    # All pairs have the same cosine, so a threshold accepts all of them or none.
    report = open_set_report(torch.ones(20, 3), torch.arange(20) // 2, fars=(0.1,))
    assert report.numbers()["TAR@FAR=1e-1"] == 0
    assert json.loads(report.json())["figures"]["angle@FAR=1e-1"]["value"] is None


def test_refuses(data):
    features, labels = data
    report = open_set_report(features, labels)
    with pytest.raises(ValueError, match="exactly one of far and fpir"):
        report.threshold()
    with pytest.raises(ValueError, match="rejection needs quality"):
        report.rejection(0.1)
    with pytest.raises(ValueError, match="points must be an integer ≥ 4"):
        report.data(3)
    with pytest.raises(ValueError, match="categories must be one for each of 180 images, got 2"):
        open_set_report(features, labels, categories=["a", "b"])
    with pytest.raises(ValueError, match="quality must be a finite number for each of 180 images"):
        open_set_report(features, labels, quality=torch.full((180,), torch.nan))
    with pytest.raises(ValueError, match=r"fars must be rates in \(0, 1\]"):
        open_set_report(features, labels, fars=(0.0,))
    with pytest.raises(ValueError, match="labels must give same and different pairs"):
        open_set_report(features, torch.arange(180))
    with pytest.raises(ValueError, match="finite"):
        all_pairs(features.index_fill(0, torch.tensor([3]), torch.nan), labels)


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


def test_all_images_as_queries_and_gallery_give_the_default_report(apart):
    features, labels, *_ = apart
    every = torch.ones_like(labels, dtype=torch.bool)
    whole, plain = open_set_report(features, labels, queries=every, gallery=every), open_set_report(features, labels)
    assert whole.numbers() == plain.numbers()


def test_half_of_the_identities_are_enrolled_if_all_have_a_mate():
    features, labels = clusters(classes=10)
    q = torch.arange(len(labels)) % 2 == 0
    report = open_set_report(features, labels, queries=q, gallery=~q)
    assert report.detection is not None
    mated = int(report.detection.ranking.mated.sum())
    assert 0 < mated < int(q.sum())
    assert len(report.detection.ranking.rank) == int(q.sum())


def test_another_score_is_used_in_all_parts():
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
    counted = all_pairs(features, labels, masks=QueryGallery(q, g), chunk=5)
    for errors in (counted.same, counted.false_accepts):
        assert ((q[errors.first] & g[errors.second]) | (g[errors.first] & q[errors.second])).all()
