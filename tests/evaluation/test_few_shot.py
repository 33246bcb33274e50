import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.neighbors import NearestCentroid
from torch import nn
from torch.nn import functional as F

from hypersphere.data.streams import CLASSIFIER, Stream
from hypersphere.evaluation import Episodes, few_shot, sample_episodes
from tests.evaluation.contracts import ReportContract


@pytest.fixture
def data():
    labels = torch.arange(12).repeat(20)
    return 1.2 * torch.randn(12, 6)[labels] + torch.randn(240, 6), labels


class TestFewShotReport(ReportContract):
    @pytest.fixture
    def report(self, data):
        return few_shot(*data, episodes=50)


def test_centroid_is_that_of_scikit_learn_on_the_sphere(data):
    features, labels = data
    episodes = sample_episodes(labels, 5, 3, 4, 30)
    unit = F.normalize(features.double()).numpy()
    expected = []
    for support, query in zip(episodes.support.numpy(), episodes.query.numpy(), strict=True):
        ways = np.arange(5)
        model = NearestCentroid().fit(unit[support].reshape(15, -1), ways.repeat(3))
        # Nearest by cosine is nearest by distance once the centroids have unit length.
        model.centroids_ /= np.linalg.norm(model.centroids_, axis=1, keepdims=True)
        expected.append((model.predict(unit[query].reshape(20, -1)) == ways.repeat(4)).mean())
    report = few_shot(features, labels, episodes=episodes)
    np.testing.assert_allclose(report.accuracies, expected)
    assert report.accuracy == pytest.approx(np.mean(expected))
    assert report.accuracy.high - report.accuracy == pytest.approx(
        1.959964 * np.std(expected, ddof=1) / np.sqrt(30), rel=1e-5
    )


def trained_alone(x, y, query, stream, epochs, cosine):
    """One episode with an ordinary layer, optimizer and loop, as F.3 describes it."""
    ways, d = int(y.max()) + 1, x.shape[1]
    layer = nn.Linear(d, ways, bias=not cosine)
    layer.weight.data = ((stream.uniforms(ways * d).view(ways, d) * 2 - 1) / d**0.5).float()
    if not cosine:
        layer.bias.data.zero_()
    forward = (lambda v: 2 * F.normalize(v) @ F.normalize(layer.weight).T) if cosine else layer
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.01, momentum=0.9, dampening=0.9, weight_decay=0.001)
    for _ in range(epochs):
        for rows in stream.permutation(len(x)).split(4):
            optimizer.zero_grad()
            F.cross_entropy(forward(x[rows]), y[rows]).backward()
            optimizer.step()
    return forward(query).argmax(1)


@pytest.mark.untyped  # many calls, whose types other tests check
@pytest.mark.parametrize("method", ["baseline", "baseline++"])
@pytest.mark.parametrize("shots", [1, 3])  # 5 and 15 samples: the last batch is smaller
def test_episodes_trained_together_are_as_trained_alone(data, method, shots):
    features, labels = data
    episodes = sample_episodes(labels, 5, shots, 6, 8)
    report = few_shot(features, labels, method=method, episodes=episodes, seed=3, epochs=20, chunk=3)
    y = torch.arange(5)
    for i, accuracy in enumerate(report.accuracies.tolist()):
        support, query = (features[index[i]].flatten(0, 1) for index in episodes)
        predicted = trained_alone(
            support, y.repeat_interleave(shots), query, Stream(3, CLASSIFIER, i), 20, method == "baseline++"
        )
        assert accuracy == pytest.approx((predicted == y.repeat_interleave(6)).double().mean().item())


@pytest.mark.parametrize("method", ["centroid", "baseline", "baseline++"])
def test_chunks_and_repetition_change_nothing(data, method):
    reports = [few_shot(*data, method=method, episodes=11, epochs=5, chunk=chunk) for chunk in (1, 4, 100, 100)]
    assert all(torch.equal(r.accuracies, reports[0].accuracies) for r in reports)


@pytest.mark.untyped  # many calls, whose types other tests check
@pytest.mark.parametrize("method", ["centroid", "baseline", "baseline++"])
def test_accuracy_is_high_for_clear_classes_and_chance_for_noise(data, method):
    features, labels = data
    assert few_shot(features, labels, shots=5, method=method, episodes=60).accuracy > 0.6
    noise = few_shot(torch.randn(240, 6), labels, shots=5, method=method, episodes=60).accuracy
    assert noise.low - 0.02 <= 0.2 <= noise.high + 0.02


def test_default_is_five_ways_and_six_hundred_episodes(data):
    report = few_shot(*data)
    assert (report.ways, report.shots, len(report.accuracies)) == (5, 1, 600)
    assert report.accuracy.low < report.accuracy < report.accuracy.high


def test_published_episodes_are_used_as_they_are():
    # Twenty classes, one support image each, one query each: the form of Lake's one-shot runs.
    features = torch.cat([torch.eye(20), torch.eye(20)])
    runs = Episodes(
        torch.arange(20).view(1, 20, 1).repeat(2, 1, 1), torch.arange(20, 40).view(1, 20, 1).repeat(2, 1, 1)
    )
    runs.query[1] = runs.query[1].roll(1, 0)
    report = few_shot(features, torch.arange(20).repeat(2), episodes=runs)
    assert report.accuracies.tolist() == [1.0, 0.0]
    assert (report.ways, report.shots) == (20, 1)


def test_works_without_gradients(data):
    with torch.no_grad():
        assert few_shot(*data, method="baseline", episodes=2, epochs=2).accuracies.shape == (2,)


def test_refuses(data):
    features, labels = data
    with pytest.raises(ValueError, match="method must be one of centroid, baseline, baseline\\+\\+, got 'svm'"):
        few_shot(features, labels, method="svm")
    with pytest.raises(ValueError, match=r"labels must have shape \(240,\)"):
        few_shot(features, labels[:-1])
    with pytest.raises(ValueError, match="features must be finite"):
        few_shot(features / 0, labels)


@given(st.integers(2, 5), st.integers(1, 3), st.integers(1, 3), st.integers(0, 10), st.randoms(use_true_random=False))
def test_ways_are_classes_and_samples_are_different(ways, shots, queries, seed, random):
    labels = [7 * c - 3 for c in range(8) for _ in range(6 + c % 3)]
    random.shuffle(labels)
    labels = torch.tensor(labels)
    episodes = sample_episodes(labels, ways, shots, queries, count=5, seed=seed)
    assert episodes.support.shape == (5, ways, shots)
    assert episodes.query.shape == (5, ways, queries)
    for support, query in zip(*episodes, strict=True):
        chosen = torch.cat([support, query], 1)
        assert (labels[chosen] == labels[chosen[:, :1]]).all()
        assert len(set(labels[chosen[:, 0]].tolist())) == ways
        assert chosen.unique().numel() == chosen.numel()


def test_episodes_depend_on_the_seed_and_their_number_only():
    labels = torch.arange(20).repeat(20)
    first, again, longer, other = (
        sample_episodes(labels, count=n, seed=s) for n, s in ((10, 1), (10, 1), (30, 1), (10, 2))
    )
    assert torch.equal(first.support, again.support)
    assert torch.equal(first.query, again.query)
    assert torch.equal(first.support, longer.support[:10])
    assert not torch.equal(first.support, other.support)
    assert len(torch.unique(longer.support.flatten(1), dim=0)) == 30


def test_classes_are_drawn_evenly():
    labels = torch.arange(10).repeat(20)
    drawn = labels[sample_episodes(labels, ways=5, shots=1, queries=1, count=2000).support.flatten()]
    counts = drawn.bincount(minlength=10)
    assert (counts - 1000).abs().max() < 5 * 22.4  # standard deviation √(2000·½·½)


def test_small_classes_are_left_out():
    labels = torch.cat([torch.arange(5).repeat(20), torch.full((3,), 5)])
    episodes = sample_episodes(labels, count=50, shots=2, queries=2)
    assert (labels[episodes.support] < 5).all()


@pytest.mark.parametrize("options", [{"ways": 1}, {"shots": 0}, {"queries": 0}, {"count": 0}])
def test_refuses_numbers_of_episodes(options):
    with pytest.raises(ValueError, match="ways must be ≥ 2 and shots, queries, count ≥ 1"):
        sample_episodes(torch.arange(10).repeat(20), **options)


def test_refuses_episodes():
    with pytest.raises(ValueError, match="ways must be at most 4, the classes with 16 samples, got 5"):
        sample_episodes(torch.cat([torch.arange(4).repeat(16), torch.tensor([4, 5])]))
    with pytest.raises(ValueError, match=r"labels must be integers of shape \(n,\)"):
        sample_episodes(torch.rand(100))
