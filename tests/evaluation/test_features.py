import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA

from hypersphere.evaluation import append_mirrored, ensemble, fold_scores, pair_scores

PAIRS = torch.randint(30, (200, 2), generator=torch.Generator().manual_seed(1))
FOLD = torch.arange(200) % 4


def brute_fold_scores(features, pairs, fold, held, center, components):
    """Score one pair at a time with the PCA of scikit-learn, fitted without the held-out fold."""
    x, scores = features.double().numpy(), []
    own = {i for pair, g in zip(pairs.tolist(), fold.tolist(), strict=True) if g == held for i in pair}
    fit = x[sorted({i for pair in pairs.tolist() for i in pair} - own)]
    mean = fit.mean(0)
    for a, b in pairs.tolist():
        u, v = (x[i] - mean if center else x[i] for i in (a, b))
        if components is not None:
            axes = PCA(components, svd_solver="full").fit(fit).components_
            u, v = axes @ u, axes @ v
        scores.append(u @ v / (np.linalg.norm(u) * np.linalg.norm(v)))
    return np.array(scores)


def test_mirror_images():
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten())
    images = torch.rand(2, 3, 8, 6)
    features = append_mirrored(model, images)
    assert torch.equal(features[:, : features.shape[1] // 2], model(images))
    assert torch.equal(features[:, features.shape[1] // 2 :], model(torch.tensor(images.numpy()[..., ::-1].copy())))
    assert torch.equal(append_mirrored(model, images.flip(-1)).roll(features.shape[1] // 2, 1), features)


def test_patch_ensembles():
    a, b, c = torch.randn(5, 3), 100 * torch.randn(5, 4), torch.randn(5, 2)
    assert torch.equal(ensemble([a, b, c]), torch.cat([a, b, c], 1))
    parts = ensemble([a, b, c], normalized=True).split([3, 4, 2], dim=1)
    for part in parts:
        torch.testing.assert_close(part.norm(dim=1), torch.ones(5))


@pytest.mark.parametrize("sizes", [[], [2, 3]])
def test_an_ensemble_is_of_the_same_images(sizes):
    with pytest.raises(ValueError, match="features must be of the same images"):
        ensemble([torch.rand(n, 2) for n in sizes])


@pytest.mark.parametrize("chunk", [1, 7, 200, 1000])
def test_pair_scores(chunk):
    features = torch.randn(30, 5)
    expected = torch.nn.functional.cosine_similarity(features[PAIRS[:, 0]].double(), features[PAIRS[:, 1]].double())
    torch.testing.assert_close(pair_scores(features, PAIRS, chunk).double(), expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("components", [None, 1, 3])
def test_fold_scores(center, components):
    # Few images per fold, so that enough features of other folds remain.
    features = torch.randn(60, 5) + 2
    pairs = torch.stack([torch.randint(15 * f, 15 * f + 15, (20, 2)) for f in range(4)]).flatten(0, 1)
    pairs[:8, 0] = torch.arange(15, 23)  # images that two folds share
    fold = torch.arange(80) // 20
    scores = fold_scores(features, pairs, fold, center=center, components=components, chunk=7)
    assert scores.shape == (4, 80)
    for row, held in enumerate(range(4)):
        expected = brute_fold_scores(features, pairs, fold, held, center, components)
        np.testing.assert_allclose(scores[row], expected, atol=1e-5)


def test_the_transform_of_a_fold_is_fitted_without_the_fold():
    features = torch.randn(40, 6)
    pairs, fold = torch.arange(40).view(20, 2), torch.arange(20) % 2
    before = fold_scores(features, pairs, fold)
    features[pairs[(fold == 0)].flatten()[0]] += 100  # an image of fold 0 only
    after = fold_scores(features, pairs, fold)
    untouched = torch.arange(20) > 0
    assert torch.equal(before[0, untouched], after[0, untouched])  # fold 0 has no effect on its own transform
    assert not torch.equal(before[1, untouched], after[1, untouched])


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (torch.zeros(3).long(), "shape"),
        (torch.zeros(3, 3).long(), "shape"),
        (torch.rand(3, 2), "integers"),
        (torch.tensor([[0, 30]]), "index 30 features"),
    ],
)
def test_refuses_pairs(pairs, message):
    with pytest.raises(ValueError, match=message):
        pair_scores(torch.rand(30, 2), pairs)


def test_refuses():
    features = torch.randn(30, 5)
    with pytest.raises(ValueError, match="chunk must be an integer ≥ 1"):
        pair_scores(features, PAIRS, 0)
    with pytest.raises(ValueError, match="fold must hold an integer for each of the 200 pairs"):
        fold_scores(features, PAIRS, FOLD[:-1])
    with pytest.raises(ValueError, match="components must be between 1 and the dimension 5"):
        fold_scores(features, PAIRS, FOLD, components=6)
    with pytest.raises(ValueError, match="too few to fit"):
        fold_scores(features, PAIRS, FOLD)  # every image is in every fold
