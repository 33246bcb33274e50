import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hypersphere.evaluation import templates


def brute(features, ids, how, quality=None):
    """Combine one identity and one image at a time, in float64."""
    x = features.double().numpy()
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    rows = []
    for i in sorted(set(ids.tolist())):
        mine = [k for k, j in enumerate(ids.tolist()) if j == i]
        if how == "max":
            pooled = np.array([max(unit[k][axis] for k in mine) for axis in range(x.shape[1])])
        else:
            weights = [1.0 if how == "mean" else np.linalg.norm(x[k]) if quality is None else quality[k] for k in mine]
            pooled = sum(w * unit[k] for w, k in zip(weights, mine, strict=True)) / sum(weights)
        rows.append(pooled / np.linalg.norm(pooled))
    return np.array(rows)


@given(st.sampled_from(["mean", "max", "quality"]), st.integers(1, 20), st.integers(0, 1000))
def test_templates_agree_with_loops(how, n, seed):
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(n, 4, generator=generator, dtype=torch.float64)
    ids = torch.randint(-2, 4, (n,), generator=generator)
    made = templates(features, ids, how)
    np.testing.assert_allclose(made.features, brute(features, ids, how), atol=1e-12)
    assert made.ids.tolist() == sorted(set(ids.tolist()))
    assert made.counts.tolist() == [ids.tolist().count(i) for i in made.ids.tolist()]


def test_quality_is_used_as_weight():
    features, ids, quality = torch.randn(6, 3).double(), torch.arange(6) // 3, torch.rand(6).double()
    made = templates(features, ids, "quality", quality=quality)
    np.testing.assert_allclose(made.features, brute(features, ids, "quality", quality.tolist()), atol=1e-12)
    only = templates(features, ids, "quality", quality=torch.tensor([1.0, 0, 0, 0, 1.0, 0]))
    torch.testing.assert_close(only.features, torch.nn.functional.normalize(features[[0, 4]], dim=1))


def test_half_precision_is_summed_in_float32():
    features = torch.randn(4000, 8).half() + 1
    exact = templates(features.double(), torch.zeros(4000).long()).features
    torch.testing.assert_close(
        templates(features, torch.zeros(4000).long()).features.double(), exact, atol=1e-3, rtol=0
    )


@pytest.mark.untyped
def test_refuses():
    features, ids = torch.randn(4, 2), torch.tensor([0, 0, 1, 1])
    with pytest.raises(ValueError, match="how must be 'mean', 'max' or 'quality', got 'median'"):
        templates(features, ids, "median")
    with pytest.raises(ValueError, match="quality is used by how='quality' only"):
        templates(features, ids, quality=torch.ones(4))
    for bad in (torch.ones(3), torch.tensor([1.0, -1, 1, 1]), torch.tensor([1.0, torch.nan, 1, 1])):
        with pytest.raises(ValueError, match="quality must be a finite number ≥ 0 for each of 4 images"):
            templates(features, ids, "quality", quality=bad)
    with pytest.raises(ValueError, match="zero for all images"):
        templates(features, ids, "quality", quality=torch.tensor([1.0, 1, 0, 0]))
    with pytest.raises(ValueError, match="template_ids must be integers"):
        templates(features, ids[:-1])
    with pytest.raises(ValueError, match="finite"):
        templates(features / 0, ids)
