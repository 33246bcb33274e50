import math

import numpy as np
import pytest
import torch

from hypersphere.evaluation import angular_visual_hardness, model_confidence


def test_avh_agrees_with_the_formula():
    generator = np.random.default_rng(0)
    x, w, y = generator.normal(size=(9, 4)), generator.normal(size=(5, 4)), generator.integers(0, 5, 9)
    angles = [[math.acos(a @ b / np.linalg.norm(a) / np.linalg.norm(b)) for b in w] for a in x]
    expected = [row[c] / sum(row) for row, c in zip(angles, y, strict=True)]
    found = angular_visual_hardness(*map(torch.from_numpy, (x, w, y)))
    assert np.allclose(found.numpy(), expected, rtol=1e-9)
    scaled = angular_visual_hardness(*map(torch.from_numpy, (1e6 * x, w, y)))
    assert np.allclose(scaled.numpy(), expected, rtol=1e-9)


def test_an_easy_sample_has_avh_zero():
    w = torch.eye(3)
    assert torch.allclose(angular_visual_hardness(2 * w, w, torch.arange(3)), torch.zeros(3), atol=1e-6)


def test_confidence_agrees_with_the_formula():
    z, y = torch.randn(6, 5, dtype=torch.float64), torch.tensor([0, 4, 2, 2, 1, 3])
    expected = [math.exp(row[c]) / sum(math.exp(v) for v in row) for row, c in zip(z.tolist(), y.tolist(), strict=True)]
    assert np.allclose(model_confidence(z, y).numpy(), expected)
    assert model_confidence(torch.tensor([[1e30, 0.0]]), torch.tensor([0])).item() == 1
    assert model_confidence(z.half(), y).dtype == torch.float32


@pytest.mark.untyped
def test_refuses():
    with pytest.raises(ValueError, match=r"labels must be in \[0, 4\], got 0 to 5"):
        model_confidence(torch.randn(2, 5), torch.tensor([0, 5]))
    with pytest.raises(ValueError, match="labels must be 2 integers"):
        angular_visual_hardness(torch.randn(2, 3), torch.randn(4, 3), torch.tensor([0]))
