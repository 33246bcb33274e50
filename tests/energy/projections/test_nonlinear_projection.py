import math

import pytest
import torch

from hypersphere.energy import CoMHE, NonlinearProjection
from tests.energy.contracts import ProjectionContract


class TestNonlinear(ProjectionContract):
    def projection(self, **options):
        return NonlinearProjection(dim=8, count=3, every=2, hidden=16, **options)

    def test_is_the_energy_of_the_networks_outputs(self):
        net = self.net().double()
        comhe = CoMHE(net, self.projection(), output=0.0)
        projection, weight = comhe.projection, net[0].weight.detach().flatten(1)
        energies = []
        for inner, outer in zip(projection.inner_27.double(), projection.outer_16.double(), strict=True):
            x = torch.stack([outer @ torch.tanh(inner @ (row / row.norm())) for row in weight])
            x = torch.nn.functional.normalize(torch.cat([x, -x]), dim=1)
            pairs = [(x[i] - x[j]).norm() ** -2 for i in range(len(x)) for j in range(len(x)) if i != j]
            energies.append(torch.stack(pairs).mean())
        assert comhe.per_layer()["0"].item() == pytest.approx(torch.stack(energies).mean().item(), rel=1e-6)

    def test_is_odd_and_sees_directions_only(self):
        projection = NonlinearProjection(dim=5, hidden=32)
        w = torch.randn(1, 4, 9)
        projection.bind("a", w)
        view = projection.views({"a": w})["a"][0]
        assert torch.allclose(projection.views({"a": -3 * w})["a"][0], -view, atol=1e-5)
        assert view.shape == (5, 1, 4, 5)

    def test_bends(self):
        projection = NonlinearProjection(dim=400, count=1, hidden=4000)
        x, y = torch.eye(6)[:2]
        middle = (x + y) / math.sqrt(2)
        w = torch.stack([x, y, middle])[None]
        projection.bind("a", w)
        a, b, c = projection.views({"a": w})["a"][0][0, 0]
        assert (c - (a + b) / math.sqrt(2)).norm() > 0.02 * c.norm()


def test_refuses():
    with pytest.raises(ValueError, match="hidden must be"):
        NonlinearProjection(hidden=0)
