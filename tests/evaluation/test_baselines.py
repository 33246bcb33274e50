import numpy as np
import pytest
import torch

from hypersphere.evaluation import (
    Baseline,
    Measurement,
    TooFewIdentitiesError,
    baselines,
    compare_with_baselines,
    format_baselines,
    principal_components,
    simple_features,
    summarize_baselines,
)

LABELS = torch.arange(12).repeat_interleave(5)


def pictures(seed=0, noise=20.0, size=(16, 16)):
    """Twelve patterns, five noisy pictures of each."""
    generator = torch.Generator().manual_seed(seed)
    patterns = 255 * torch.rand(12, 1, *size, generator=torch.Generator().manual_seed(7))
    return (patterns[LABELS] + noise * torch.randn(60, 1, *size, generator=generator)).clamp(0, 255).to(torch.uint8)


def test_principal_components_are_those_of_scikit_learn():
    decomposition = pytest.importorskip("sklearn.decomposition")
    for shape in ((30, 8), (8, 30)):
        x = torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        ours = principal_components(x, 5)
        theirs = decomposition.PCA(5).fit(x.numpy()).components_
        np.testing.assert_allclose(np.abs((ours.numpy() * theirs).sum(1)), 1, atol=1e-9)


def test_discriminant_directions_are_those_of_scikit_learn():
    """LDA of two classes has one direction: W⁻¹(m₁ − m₀)."""
    lda = pytest.importorskip("sklearn.discriminant_analysis").LinearDiscriminantAnalysis(solver="eigen")
    from hypersphere.evaluation import fit_discriminant

    generator = torch.Generator().manual_seed(2)
    labels = torch.arange(2).repeat_interleave(200)
    x = torch.randn(400, 4, generator=generator, dtype=torch.float64) @ torch.randn(4, 4, generator=generator).double()
    x[labels == 1] += torch.tensor([1.0, 0.5, -1.0, 0.2])
    weight = fit_discriminant(x, labels, shrink=1e-9).weight
    direction = weight[weight.norm(dim=1).argmax()].numpy()
    theirs = lda.fit(x.numpy(), labels.numpy()).scalings_[:, 0]
    cosine = direction @ theirs / np.linalg.norm(direction) / np.linalg.norm(theirs)
    assert abs(cosine) == pytest.approx(1, abs=1e-6)


def test_every_method_tells_clear_patterns_apart():
    found = simple_features(pictures(1), pictures(2), LABELS)
    assert list(found) == ["raw pixels", "LBP", "HOG", "PCA", "PCA + LDA", "HOG, PCA + LDA"]
    for baseline in compare_with_baselines(torch.randn(60, 4), LABELS, found, resamples=20):
        assert baseline.eer < 0.1, baseline
        assert not baseline.is_beaten


def test_spectra_have_row_statistics():
    assert "row statistics, LDA" in simple_features(pictures(1, size=(8, 24)), pictures(2, size=(8, 24)), LABELS)


def test_nothing_is_fitted_to_measured_pictures():
    """A picture's features do not depend on the other measured pictures."""
    whole, part = (simple_features(pictures(1)[:n], pictures(2), LABELS) for n in (60, 7))
    for name, features in part.items():
        torch.testing.assert_close(features, whole[name][:7], atol=1e-4, rtol=1e-4, msg=name)


def test_a_method_that_is_beaten_and_one_that_is_not():
    clear = torch.eye(12)[LABELS] + 0.05 * torch.randn(60, 12, generator=torch.Generator().manual_seed(5))
    noise = torch.randn(60, 6, generator=torch.Generator().manual_seed(6))
    best, worst = compare_with_baselines(clear, LABELS, {"noise": noise, "the same": clear}, resamples=200)
    assert (best.name, best.is_beaten, float(best.difference)) == ("the same", False, 0.0)
    assert worst.name == "noise"
    assert worst.is_beaten
    assert summarize_baselines([worst]).startswith("the trained network clearly beats all 1 simple methods")
    assert "does not clearly beat the same (EER" in summarize_baselines([best, worst])
    assert len(format_baselines([best, worst])) == 3
    assert [Baseline.from_dict(one.to_dict()).to_dict() for one in (best, worst)] == [best.to_dict(), worst.to_dict()]


def test_two_identities_have_no_interval():
    labels = torch.arange(2).repeat_interleave(4)
    (found,) = compare_with_baselines(torch.randn(8, 3), labels, {"noise": torch.randn(8, 3)})
    assert found.difference.interval == (-1.0, 1.0)
    assert not found.is_beaten


def test_only_too_few_identities_leave_a_comparison_undecided(monkeypatch):
    def refuse(*args, **options):
        raise TooFewIdentitiesError

    with monkeypatch.context() as patch:
        patch.setattr(baselines, "compare_embedders", refuse)
        (found,) = compare_with_baselines(torch.randn(12, 3), LABELS[:12], {"noise": torch.randn(12, 3)})
    assert found.difference.interval == (-1.0, 1.0)
    assert found.eer.interval == (0.0, 1.0)
    with pytest.raises(ValueError, match="resamples must be"):
        compare_with_baselines(torch.randn(12, 3), LABELS[:12], {"noise": torch.randn(12, 3)}, resamples=1)


def test_a_pretrained_network_is_recommended():
    close = Baseline("pretrained sface (on 90 pictures)", Measurement(0.01, 0, 0.02), Measurement(0.1, 0.05, 0.15))
    assert "start from it with --from sface" in summarize_baselines([close])


def test_a_run_that_started_from_a_pretrained_network_is_not_advised_to_do_so():
    close = Baseline("PCA", Measurement(0.1, 0.05, 0.15), Measurement(0.01, -0.02, 0.04))
    start = Baseline("ge2e before training", Measurement(0.12, 0.05, 0.15), Measurement(-0.01, -0.02, 0.04))
    untrained = Baseline("the network before training", Measurement(0.5, 0.4, 0.6), Measurement(-0.39, -0.5, -0.3))
    assert "start from a pretrained network" not in summarize_baselines([close, start])
    assert "start from a pretrained network" in summarize_baselines([close, untrained])
