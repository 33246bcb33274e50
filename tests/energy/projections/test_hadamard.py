import pytest
import torch

from hypersphere.energy import HadamardProjection
from tests.energy.contracts import ProjectionContract

scipy_linalg = pytest.importorskip("scipy.linalg")


class TestHadamard(ProjectionContract):
    def projection(self, **options):
        return HadamardProjection(dim=8, count=3, every=2, **options)

    def test_rows_are_orthogonal_signs(self):
        p = HadamardProjection(dim=16).draw_one(16) * 4
        assert torch.equal(p.abs(), torch.ones(16, 16))
        assert torch.equal(p @ p.T, 16 * torch.eye(16))

    def test_all_rows_keep_every_angle(self):
        p, x = HadamardProjection(dim=32).draw_one(20), torch.randn(20)
        assert (p @ x).norm().item() == pytest.approx(x.norm().item(), rel=1e-5)

    def test_keeps_inner_products_in_the_mean(self):
        projection = HadamardProjection(dim=8, count=4000)
        x, y = torch.randn(2, 20)
        p = projection.draw("basis", 20)
        products = ((p @ x) * (p @ y)).sum(1)
        assert (products.mean() - x @ y).abs() < 4 * products.std() / 4000**0.5

    def test_unsigned_rows_agree_with_scipy(self):
        from hypersphere.energy.projections.hadamard import _parity_signs

        rows = torch.arange(16)
        assert (_parity_signs(rows[:, None] & rows).numpy() == scipy_linalg.hadamard(16)).all()
