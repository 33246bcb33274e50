import math

import pytest
import torch

from hypersphere.energy import CoMHE, RandomProjection
from hypersphere.energy.projections.random import project
from hypersphere.geometry import cosine
from tests.energy.contracts import ProjectionContract


class TestMean(ProjectionContract):
    def projection(self, **options):
        return RandomProjection(dim=8, count=3, every=2, **options)

    def test_is_redrawn_on_schedule(self):
        comhe = CoMHE(self.net(), RandomProjection(dim=8, count=3, every=3))
        start = comhe.projection.basis_27.clone()
        changed = []
        for _ in range(6):
            before = comhe.projection.basis_27.clone()
            comhe.step()
            changed.append(not torch.equal(before, comhe.projection.basis_27))
        assert changed == [False, False, True, False, False, True]
        assert not torch.equal(start, comhe.projection.basis_27)

    def test_never_redrawn(self):
        comhe = CoMHE(self.net(), RandomProjection(every=None))
        before = comhe.projection.basis_27.clone()
        for _ in range(5):
            comhe.step()
        assert torch.equal(before, comhe.projection.basis_27)


class TestMaximum(ProjectionContract):
    def projection(self, **options):
        return RandomProjection(dim=8, count=3, every=2, reduce="max", **options)


class TestTheory:
    """Section 6.4.1, with 4000 draws of P for each pair of vectors."""

    draws = 4000

    def pairs(self, positive=False):
        generator = torch.Generator().manual_seed(0)
        for cos in [0.05, 0.5, 0.95] if positive else [-0.9, -0.3, 0.0, 0.6, 0.98]:
            q = torch.linalg.qr(torch.randn(100, 2, generator=generator)).Q
            yield q[:, 0], 3 * (cos * q[:, 0] + math.sqrt(1 - cos**2) * q[:, 1]), cos

    def projected(self, k, x, y):
        projection = RandomProjection(dim=k, count=self.draws)
        p = projection.draw("basis", 100)
        return p @ x, p @ y

    @pytest.mark.parametrize(("k", "epsilon"), [(30, 0.7), (100, 0.4), (200, 0.25)])
    def test_theorem_3(self, k, epsilon):
        probability = (1 - 2 * math.exp(-k * epsilon**2 / 8)) ** 2
        for x, y, cos in self.pairs():
            after = cosine(*self.projected(k, x, y))
            holds = ((cos - epsilon) / (1 + epsilon) < after) & (after < (cos + epsilon) / (1 - epsilon))
            assert holds.float().mean() >= probability

    @pytest.mark.parametrize(("k", "epsilon"), [(50, 0.6), (100, 0.45), (200, 0.3)])
    def test_theorem_4(self, k, epsilon):
        probability = 1 - 6 * math.exp(-k / 2 * (epsilon**2 / 2 - epsilon**3 / 3))
        assert probability > 0.5
        for x, y, cos in self.pairs(positive=True):
            after = cosine(*self.projected(k, x, y))
            lower = (1 + epsilon) / (1 - epsilon) * cos - 2 * epsilon / (1 - epsilon)
            upper = (
                (1 - epsilon) / (1 + epsilon) * cos
                + (1 + 2 * epsilon) / (1 + epsilon)
                - math.sqrt(1 - epsilon**2) / (1 + epsilon)
            )
            assert ((lower < after) & (after < upper)).float().mean() >= probability

    def test_lemma_3_in_the_mean(self):
        for x, y, _ in self.pairs():
            px, py = self.projected(20, x, y)
            products = (px * py).sum(1)
            assert (products.mean() - x @ y).abs() < 4 * products.std() / math.sqrt(self.draws)


def test_project_is_the_product_with_every_basis():
    weight, basis = torch.randn(2, 4, 6), torch.randn(5, 3, 6)
    expected = torch.stack([torch.stack([w @ p.T for w in weight]) for p in basis])
    assert torch.allclose(project(weight, basis), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dim": 1}, "dim must be a number ≥ 2"),
        ({"count": 0}, "count must be a number ≥ 1"),
        ({"every": 0}, "every must be"),
    ],
)
def test_refuses(options, message):
    with pytest.raises(ValueError, match=message):
        RandomProjection(**options)


@pytest.mark.untyped
def test_refuses_another_option():
    with pytest.raises(ValueError, match="reduce must be"):
        RandomProjection(reduce="sum")
