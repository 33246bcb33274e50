import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from torch.nn.functional import normalize

from hypersphere.evaluation import discriminant


def classes(seed=0, count=30, samples=8, d=5):
    """Classes whose means differ much in some directions and whose samples differ much in others, all of it turned."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count).repeat_interleave(samples)
    ways = torch.linalg.qr(torch.randn(d, d, dtype=torch.float64, generator=generator))[0]
    means = torch.randn(count, d, dtype=torch.float64, generator=generator) * torch.linspace(2, 0.1, d)
    noise = torch.randn(count * samples, d, dtype=torch.float64, generator=generator) * torch.linspace(0.2, 2, d)
    return (means[labels] + noise + 3) @ ways, labels


def cosines(x):
    return normalize(x, dim=1) @ normalize(x, dim=1).T


def slow(x, labels, shrink):
    """Expected class means under the model of two covariances, by numpy: B(B + W)⁻¹(x − m), up to the factor in whose metric
    cosines are taken, W^{-1/2}(B(B + W)⁻¹)^{1/2} read in the basis of scipy's generalized eigenvectors."""
    x, labels = x.numpy(), labels.numpy()
    means = np.stack([x[labels == c].mean(0) for c in np.unique(labels)])
    rest = np.concatenate([x[labels == c] - x[labels == c].mean(0) for c in np.unique(labels)])
    within, centre = rest.T @ rest / len(rest), means.mean(0)
    between = (means - centre).T @ (means - centre) / len(means)
    within = within + shrink * np.trace(within) / len(within) * np.eye(len(within))
    beta, vectors = scipy.linalg.eigh(between, within)
    return torch.from_numpy((x - centre) @ vectors * np.sqrt(np.maximum(beta, 0) / (1 + np.maximum(beta, 0))))


@settings(max_examples=25)
@given(st.integers(0, 99), st.integers(2, 20), st.integers(2, 6), st.integers(1, 6), st.floats(1e-3, 2))
def test_is_the_generalised_eigenproblem(seed, count, samples, d, shrink):
    x, labels = classes(seed, count, samples, d)
    torch.testing.assert_close(cosines(discriminant(x, labels, shrink)(x)), cosines(slow(x, labels, shrink)))


def test_directions_are_those_of_fishers_discriminant():
    x, labels = classes()
    ours = discriminant(x, labels, 1e-9).weight.flip(0)[:3]  # the most telling first
    theirs = torch.from_numpy(LinearDiscriminantAnalysis(solver="eigen").fit(x, labels).scalings_.T[:3])
    torch.testing.assert_close((normalize(ours, dim=1) * normalize(theirs, dim=1)).sum(1).abs(), torch.ones(3).double())


def test_no_linear_map_of_the_features_matters_without_shrinking():
    x, labels = classes(1)
    bent = x @ torch.randn(5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(2)) + 7
    here, there = (discriminant(f, labels, 1e-12)(f) for f in (x, bent))
    torch.testing.assert_close(cosines(here), cosines(there), atol=1e-6, rtol=0)


def test_unseen_classes_are_found_more_often():
    x, labels = classes(3, count=400, d=8)
    seen, unseen = labels < 300, labels >= 300
    layer = discriminant(x[seen], labels[seen])

    def found(features):
        first, others = features[unseen][::8], features[unseen][4::8]
        right = (normalize(others, dim=1) @ normalize(first, dim=1).T).argmax(1) == torch.arange(100)
        return right.double().mean().item()

    assert found(layer(x)) > 1.5 * found(x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_is_a_frozen_layer_of_the_features_kind(dtype):
    x, labels = classes()
    layer = discriminant(x.to(dtype), labels)
    assert layer.weight.dtype == dtype
    assert not any(p.requires_grad for p in layer.parameters())


@pytest.mark.untyped
@pytest.mark.parametrize(
    ("x", "labels", "shrink", "message"),
    [
        (torch.randn(4, 2), torch.zeros(3, dtype=torch.long), 0.1, "n×d with n labels"),
        (torch.randn(4, 2), torch.tensor([0, 0, 1, 1]), 0.0, "shrink must be > 0"),
        (torch.randn(4, 2), torch.zeros(4, dtype=torch.long), 0.1, "two classes or more"),
        (torch.randn(4, 2), torch.arange(4), 0.1, "of at most 1 samples"),
        (torch.full((4, 2), torch.nan), torch.tensor([0, 0, 1, 1]), 0.1, "must be finite"),
        (torch.ones(4, 2), torch.tensor([0, 0, 1, 1]), 0.1, "must differ"),
    ],
)
def test_refuses(x, labels, shrink, message):
    with pytest.raises(ValueError, match=message):
        discriminant(x, labels, shrink)


def test_shrinking_toward_all_samples_keeps_directions_that_few_classes_do_not_span():
    generator = torch.Generator().manual_seed(1)
    labels = torch.arange(3).repeat_interleave(40)
    means = torch.zeros(3, 5)
    means[:, :2] = 3 * torch.randn(3, 2, generator=generator)  # three classes differ in two directions only
    x = means[labels] + torch.randn(120, 5, generator=generator)
    plain, shrunk = (discriminant(x, labels, between=between).weight for between in (0.0, 0.6))
    unseen = torch.eye(5)[2:]  # directions in which other classes could differ
    assert (plain @ unseen.T).norm() < 0.3 * (shrunk @ unseen.T).norm()


@pytest.mark.parametrize("between", [-0.1, 1.1])
def test_refuses_a_share_out_of_range(between):
    with pytest.raises(ValueError, match="between must lie in 0 … 1"):
        discriminant(torch.randn(8, 3), torch.arange(8) // 2, between=between)
