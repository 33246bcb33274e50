import pytest
import torch
from torch.nn.functional import normalize

from hypersphere.evaluation import all_pairs, descriptor_fitting, discriminant, fit_descriptors, principal_components
from hypersphere.evaluation.descriptor_fitting import weigh_by_error
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
    described = describe_pictures(x)
    names = [name for name, _ in network.parts]
    assert names[: len(names) // 2] == names[len(names) // 2 :]
    for place, (layer, name) in enumerate(zip(network.maps, names, strict=True)):
        components = principal_components(described[name], len(x) - 1)
        wanted = (described[name] - described[name].mean(0)) @ components.T
        if place < len(names) // 2:
            wanted = discriminant(wanted, LABELS, 0.1, between=0.6)(wanted)
        found = layer(described[name]).detach()
        torch.testing.assert_close(cosines(found), cosines(wanted).detach(), atol=1e-3, rtol=1e-3)


def test_principal_components_alone_count_less_with_more_identities():
    shares = {}
    for identities in (6, 18):
        weights = descriptor_fitting._weigh(dict.fromkeys([("HOG", False), ("HOG", True)], 0.2), identities)
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
    """Symmetric patterns with one-sided noise: mirror images double the training pictures."""
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
