import pytest
import torch
from pytorch_metric_learning.distances import CosineSimilarity
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
from pytorch_metric_learning.utils.inference import CustomKNN
from sklearn.metrics import normalized_mutual_info_score

from hypersphere.evaluation import (
    map_at_r,
    mean_average_precision,
    mean_reciprocal_rank,
    mutual_information,
    normalized_mutual_information,
    r_precision,
    recall_at_k,
    retrieval,
)
from tests.evaluation.test_retrieval import data

MEASURES = {
    "mean_average_precision": mean_average_precision,
    "mean_average_precision_at_r": map_at_r,
    "r_precision": r_precision,
    "precision_at_1": recall_at_k,
    "mean_reciprocal_rank": mean_reciprocal_rank,
}


@pytest.mark.parametrize("apart", [False, True], ids=["own set", "gallery"])
def test_all_agree_with_pytorch_metric_learning(apart):
    features, labels = data(80, 6)
    gallery = data(90, 6, seed=3) if apart else (features, labels)
    names = tuple(MEASURES)
    # k is the size of the gallery, without the query if it is part of the gallery, so that no image is cut off.
    k = len(gallery[1]) - (0 if apart else 1)
    calculator = AccuracyCalculator(
        include=names, k=k, device=torch.device("cpu"), knn_func=CustomKNN(CosineSimilarity())
    )
    expected = calculator.get_accuracy(features, labels, *gallery, ref_includes_query=not apart)
    for name, measure in MEASURES.items():
        got = measure(features, labels, *(gallery if apart else ()))
        assert float(got) == pytest.approx(float(expected[name]), abs=1e-6), name
        assert got.low <= got <= got.high


def test_recall_at_k_agrees_with_the_report():
    features, labels = data()
    assert recall_at_k(features, labels, k=5) == retrieval(features, labels).recall(5)


def test_mutual_information_agrees_with_scikit_learn():
    generator = torch.Generator().manual_seed(0)
    for classes, clusters in ((5, 5), (3, 9), (1, 4)):
        a = torch.randint(classes, (50,), generator=generator)
        b = torch.randint(clusters, (50,), generator=generator)
        assert mutual_information(a, b) == pytest.approx(normalized_mutual_info_score(a, b), abs=1e-12)
    assert mutual_information(torch.zeros(4).long(), torch.ones(4).long()) == 1.0


def test_clear_identities_have_a_mutual_information_of_one():
    features, labels = data(60, 5)
    clear = torch.eye(5)[labels] + 0.01 * features[:, :5]
    assert normalized_mutual_information(clear, labels, runs=10) == pytest.approx(1.0)
    assert normalized_mutual_information(features, labels) < 0.9


def test_mutual_information_refuses():
    with pytest.raises(ValueError, match="labels and groups must have the same shape"):
        mutual_information(torch.zeros(3).long(), torch.zeros(2).long())
