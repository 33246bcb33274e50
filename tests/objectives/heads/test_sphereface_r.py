import math

import numpy as np
import pytest
import torch

from hypersphere.objectives import SphereFaceR
from tests.objectives.contracts import HeadContract, gradients, waves


def seeded(**options):
    torch.manual_seed(1)
    return SphereFaceR(5, 11, **options)


class TestV0(HeadContract):
    scale = 30.0

    def head(self, **options):
        return seeded(**{"gradient": "exact", **options})

    def easy(self):
        return seeded(m=1, gradient="exact")

    def psi(self, theta):
        return waves(theta, 1.5)


class TestV1(TestV0):
    def head(self, **options):
        return seeded(**{"version": "v1", "gradient": "exact", **options})

    def easy(self):
        return seeded(version="v1", m=1, gradient="exact")

    def psi(self, theta):
        return np.cos(np.minimum(1.5 * theta, math.pi))


class TestV2(HeadContract):
    scale = 30.0

    def head(self, **options):
        return seeded(**{"version": "v2", "gradient": "exact", **options})

    def easy(self):
        return seeded(version="v2", m=1, gradient="exact")

    def other_of(self, theta, thetas, label, length):
        return np.cos(theta / 1.5)


@pytest.mark.parametrize("version", ["v0", "v1", "v2"])
def test_the_gradient_is_that_of_the_detached_form(version):
    """s·(cos θ + stop(ψ − cos θ)), written out with the cosines of all classes."""
    head = seeded(version=version, dtype=torch.float64)
    assert head.gradient == "detached"
    x, y = torch.randn(7, 5, dtype=torch.float64), torch.randint(0, 11, (7,))
    results = [gradients(head, x, y, chunk=chunk) for chunk in (None, 4)]
    inputs, weight = x.clone().requires_grad_(), head.weight.detach().clone().requires_grad_()
    cos = torch.nn.functional.cosine_similarity(inputs[:, None], weight, dim=-1)
    theta = cos.detach().acos().numpy()
    target = np.arange(11) == y.numpy()[:, None]
    changed = {
        "v0": lambda: np.where(target, waves(theta, 1.5), np.cos(theta)),
        "v1": lambda: np.where(target, np.cos(np.minimum(1.5 * theta, math.pi)), np.cos(theta)),
        "v2": lambda: np.where(target, np.cos(theta), np.cos(theta / 1.5)),
    }[version]()
    loss = torch.nn.functional.cross_entropy(30 * (cos + (torch.from_numpy(changed) - cos).detach()), y)
    loss.backward()
    for found in results:
        for a, b in zip(found, (loss.detach(), inputs.grad, weight.grad), strict=True):
            assert torch.allclose(a, b, atol=1e-10)


@pytest.mark.untyped
def test_an_unknown_version_is_refused():
    with pytest.raises(ValueError, match="version must be one of v0, v1, v2, got 'v3'"):
        seeded(version="v3")
