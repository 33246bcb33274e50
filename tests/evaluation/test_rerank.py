import numpy as np
import pytest
import torch

from hypersphere.evaluation import TableScore, rerank, retrieval


def reference(x, k1, k2, weight):
    """Compute the k-reciprocal encoding with loops, in float64."""
    n = len(x)
    cos = x @ x.T
    order = np.argsort(-(cos + 9 * np.eye(n)), axis=1, kind="stable")

    def mutual(i, k):
        return {j for j in order[i, : k + 1] if i in order[j, : k + 1]}

    code = np.zeros((n, n))
    for i in range(n):
        found = mutual(i, k1)
        whole = set(found)
        for j in found:
            half = mutual(j, round(k1 / 2))
            if len(half & found) > 2 / 3 * len(half):
                whole |= half
        for j in whole:
            code[i, j] = np.exp(cos[i, j] - 1)
        code[i] /= code[i].sum()
    code = np.stack([code[order[i, :k2]].mean(0) for i in range(n)])
    low = np.minimum(code[:, None], code[None]).sum(2)
    high = np.maximum(code[:, None], code[None]).sum(2)
    return (1 - weight) * low / high + weight * cos


def clusters(people=12, each=5, dim=16, noise=0.9):
    generator = torch.Generator().manual_seed(3)
    labels = torch.arange(people).repeat_interleave(each)
    means = torch.randn(people, dim, generator=generator)
    return means[labels] + noise * torch.randn(len(labels), dim, generator=generator), labels


@pytest.mark.parametrize(("k1", "k2", "weight"), [(20, 6, 0.3), (4, 1, 0.0), (5, 3, 1.0), (200, 300, 0.5)])
def test_agrees_with_the_published_formula(k1, k2, weight):
    x, _ = clusters()
    unit = torch.nn.functional.normalize(x.double()).float().numpy()
    expected = reference(unit, k1, k2, weight)
    assert np.abs(rerank(x, k1=k1, k2=k2, weight=weight).numpy() - expected).max() < 2e-6
    parts = rerank(x[:20], x[20:], k1=k1, k2=k2, weight=weight).numpy()
    assert np.abs(parts - expected[:20, 20:]).max() < 2e-6


def test_it_finds_more_of_an_identity():
    x, labels = clusters()
    plain = float(retrieval(x, labels).mean_average_precision)
    numbers = torch.arange(len(x))[:, None].double()
    better = float(retrieval(numbers, labels, score=TableScore(rerank(x, k1=5, k2=3))).mean_average_precision)
    assert better > plain + 0.01


def test_wrong_arguments(monkeypatch):
    for options in ({"k1": 0}, {"k2": 0}, {"weight": 1.5}):
        with pytest.raises(ValueError, match="k1 and k2 must be ≥ 1 and weight in"):
            rerank(torch.randn(4, 2), **options)
    monkeypatch.setattr("hypersphere.evaluation._rerank.MAX_FEATURES", 3)
    with pytest.raises(ValueError, match="at most 3 features, got 4"):
        rerank(torch.randn(4, 2))
