import torch

from hypersphere.energy import CountSketch
from tests.energy.contracts import ProjectionContract


class TestCountSketch(ProjectionContract):
    def projection(self, **options):
        return CountSketch(dim=8, count=3, every=2, **options)

    def test_each_coordinate_goes_to_one_bucket(self):
        p = CountSketch(dim=5).draw_one(40)
        assert ((p != 0).sum(0) == 1).all()
        assert set(p.unique().tolist()) == {-1.0, 0.0, 1.0}

    def test_keeps_inner_products_in_the_mean(self):
        x, y = torch.randn(2, 20)
        p = CountSketch(dim=8, count=4000).draw("basis", 20)
        products = ((p @ x) * (p @ y)).sum(1)
        assert (products.mean() - x @ y).abs() < 4 * products.std() / 4000**0.5
