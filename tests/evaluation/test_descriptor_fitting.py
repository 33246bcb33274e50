import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from torch.nn.functional import normalize

from hypersphere.evaluation import (
    all_pairs,
    descriptor_fitting,
    fit_descriptors,
    fit_discriminant,
    principal_components,
)
from hypersphere.evaluation.descriptor_fitting import learn_filters, weigh_by_error
from hypersphere.models import describe_pictures

LABELS = torch.arange(9).repeat_interleave(6)


def pictures(seed=0, noise=0.5, size=(16, 16)):
    """Nine patterns, six noisy pictures of each."""
    patterns = torch.rand(9, 1, *size, generator=torch.Generator().manual_seed(7))
    return patterns[LABELS] + noise * torch.rand(54, 1, *size, generator=torch.Generator().manual_seed(seed))


def cosines(x):
    return normalize(x, dim=1) @ normalize(x, dim=1).T


def test_maps_are_principal_components_alone_and_with_a_discriminant():
    x = pictures()
    network = fit_descriptors(x, LABELS, mirror=False).network
    described = {**describe_pictures(x), "patch responses": network.patches(x)}
    names = [name for name, _ in network.parts]
    assert names[: len(names) // 2] == names[len(names) // 2 :]
    for i, (layer, name) in enumerate(zip(network.maps, names, strict=True)):
        components = principal_components(described[name], len(x) - 1)
        wanted = (described[name] - described[name].mean(0)) @ components.T
        if i < len(names) // 2:
            wanted = fit_discriminant(wanted, LABELS, 0.1, between=0.6)(wanted)
        found = layer(described[name]).detach()
        torch.testing.assert_close(cosines(found), cosines(wanted).detach(), atol=1e-3, rtol=1e-3)


def test_principal_components_alone_count_less_with_more_identities():
    shares = {}
    for identities in (6, 18):
        weights = descriptor_fitting._weigh_maps(dict.fromkeys([("HOG", False), ("HOG", True)], 0.2), identities)
        shares[identities] = weights["HOG", True] / weights["HOG", False]
    assert shares == {6: pytest.approx(10 / 6), 18: pytest.approx(10 / 18)}


def test_the_weighted_descriptors_recognize_new_pictures():
    fitted = fit_descriptors(pictures(), LABELS)
    assert fitted.eer is not None
    assert fitted.eer <= min(fitted.eers.values()) + 0.02
    with torch.no_grad():
        assert float(all_pairs(fitted.network(pictures(1)), LABELS, worst=1).roc.eer) < 0.05


def test_mirror_images_are_used_only_if_they_help():
    fitted = fit_descriptors(pictures(), LABELS)
    assert fitted.mirrored == (fitted.mirrored_eer < 0.98 * fitted.plain_eer)
    forced = fit_descriptors(pictures(), LABELS, mirror=not fitted.mirrored)
    assert forced.mirrored is not fitted.mirrored


def test_mirror_images_are_used_if_the_other_folds_say_so():
    """The patterns are symmetric and the noise is not, so mirror images double the training pictures."""
    half = torch.rand(9, 1, 16, 8, generator=torch.Generator().manual_seed(7))
    patterns = torch.cat([half, half.flip(-1)], 3)
    noise = 2.0 * torch.rand(54, 1, 16, 16, generator=torch.Generator().manual_seed(1))
    fitted = fit_descriptors(patterns[LABELS] + noise, LABELS)
    assert fitted.mirrored_eer < 0.98 * fitted.plain_eer
    assert fitted.mirrored


def test_spectra_are_not_mirrored():
    fitted = fit_descriptors(pictures(size=(8, 24)), LABELS)
    assert not fitted.mirrored
    assert fitted.mirrored_eer is None
    assert "row statistics" in fitted.eers


def test_few_identities_have_equal_weights():
    few = LABELS < 4
    fitted = fit_descriptors(pictures()[few], LABELS[few])
    assert fitted.eer is None
    assert len(set(fitted.network.weights.values())) == 1


def test_weights_follow_the_sensitivity():
    scipy = pytest.importorskip("scipy.stats")
    eers = [0.05, 0.2, 0.4]
    wanted = [scipy.norm.isf(eer) ** 2 for eer in eers]
    assert weigh_by_error(eers) == pytest.approx([value / sum(wanted) for value in wanted])
    assert weigh_by_error([0.5, 0.6]) == [0.5, 0.5]
    assert weigh_by_error([0.0, 0.5])[1] == 0


def test_one_identity_is_refused():
    with pytest.raises(ValueError, match="two classes or more"):
        fit_descriptors(pictures()[:6], LABELS[:6])


def test_equal_pictures_of_every_identity_have_principal_components_only():
    clean = pictures(noise=0.0)
    fitted = fit_descriptors(clean, LABELS, mirror=False)
    assert fitted.eer == 0
    assert fitted.network(clean).isfinite().all()


def stripes():
    """Pictures of horizontal and of vertical stripes at random places, with a little noise."""
    generator = torch.Generator().manual_seed(0)
    wave = torch.sin(torch.arange(16) * 1.5 + 6 * torch.rand(40, 1, generator=generator))
    pictures = torch.cat([wave[:20, None].expand(20, 16, 16), wave[20:, :, None].expand(20, 16, 16)])[:, None]
    return pictures + 0.05 * torch.randn(40, 1, 16, 16, generator=generator)


def test_learned_filters_respond_to_the_patterns_of_the_pictures():
    x = stripes()
    found = learn_filters(x, 12)(x)
    found = found - found.mean(0)
    both = torch.nn.functional.cosine_similarity(found[:, None], found[None], dim=2)
    assert both[:20, :20].mean() > 0.5
    assert both[:20, 20:].mean() < -0.5


def test_learned_filters_are_the_same_for_the_same_seed():
    x = stripes()
    first, second, other = learn_filters(x, 8), learn_filters(x, 8), learn_filters(x, 8, seed=1)
    assert torch.equal(first.weight, second.weight)
    assert not torch.equal(first.weight, other.weight)


def test_equal_pictures_have_finite_learned_filters():
    assert learn_filters(torch.ones(3, 1, 10, 10), 5).weight.isfinite().all()
    assert learn_filters(torch.rand(3, 1, 4, 5), 5).side == 2


def classes(seed=0, count=30, samples=8, d=5):
    """Return classes whose means vary in some directions and whose samples vary in others, in a rotated basis."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count).repeat_interleave(samples)
    ways = torch.linalg.qr(torch.randn(d, d, dtype=torch.float64, generator=generator))[0]
    means = torch.randn(count, d, dtype=torch.float64, generator=generator) * torch.linspace(2, 0.1, d)
    noise = torch.randn(count * samples, d, dtype=torch.float64, generator=generator) * torch.linspace(0.2, 2, d)
    return (means[labels] + noise + 3) @ ways, labels


def slow(x, labels, shrink):
    """Compute the expected class means B(B + W)⁻¹(x − m) of the two-covariance model with numpy.

    For cosines, the map is W^{-1/2}(B(B + W)⁻¹)^{1/2} in the basis of scipy's generalized eigenvectors.
    """
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
    torch.testing.assert_close(cosines(fit_discriminant(x, labels, shrink)(x)), cosines(slow(x, labels, shrink)))


def test_directions_are_those_of_fishers_discriminant():
    x, labels = classes()
    ours = fit_discriminant(x, labels, 1e-9).weight.flip(0)[:3]  # the most discriminative first
    theirs = torch.from_numpy(LinearDiscriminantAnalysis(solver="eigen").fit(x, labels).scalings_.T[:3])
    torch.testing.assert_close((normalize(ours, dim=1) * normalize(theirs, dim=1)).sum(1).abs(), torch.ones(3).double())


def test_no_linear_map_of_the_features_matters_without_shrinking():
    x, labels = classes(1)
    bent = x @ torch.randn(5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(2)) + 7
    here, there = (fit_discriminant(f, labels, 1e-12)(f) for f in (x, bent))
    torch.testing.assert_close(cosines(here), cosines(there), atol=1e-6, rtol=0)


def test_unseen_classes_are_found_more_often():
    x, labels = classes(3, count=400, d=8)
    seen, unseen = labels < 300, labels >= 300
    layer = fit_discriminant(x[seen], labels[seen])

    def found(features):
        first, others = features[unseen][::8], features[unseen][4::8]
        right = (normalize(others, dim=1) @ normalize(first, dim=1).T).argmax(1) == torch.arange(100)
        return right.double().mean().item()

    assert found(layer(x)) > 1.5 * found(x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_is_a_frozen_layer_of_the_features_kind(dtype):
    x, labels = classes()
    layer = fit_discriminant(x.to(dtype), labels)
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
        fit_discriminant(x, labels, shrink)


def test_shrinking_toward_all_samples_keeps_directions_that_few_classes_do_not_span():
    generator = torch.Generator().manual_seed(1)
    labels = torch.arange(3).repeat_interleave(40)
    means = torch.zeros(3, 5)
    means[:, :2] = 3 * torch.randn(3, 2, generator=generator)  # three classes differ in two directions only
    x = means[labels] + torch.randn(120, 5, generator=generator)
    plain, shrunk = (fit_discriminant(x, labels, between=between).weight for between in (0.0, 0.6))
    unseen = torch.eye(5)[2:]  # directions in which other classes could differ
    assert (plain @ unseen.T).norm() < 0.3 * (shrunk @ unseen.T).norm()


@pytest.mark.parametrize("between", [-0.1, 1.1])
def test_refuses_a_share_out_of_range(between):
    with pytest.raises(ValueError, match="between must lie in 0 … 1"):
        fit_discriminant(torch.randn(8, 3), torch.arange(8) // 2, between=between)
