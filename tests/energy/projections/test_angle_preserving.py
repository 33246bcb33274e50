import math

import pytest
import torch
from torch import nn

from hypersphere.energy import AnglePreservingProjection, CoMHE, hyperspherical_energy
from tests.energy.contracts import ProjectionContract


class TestAlternating(ProjectionContract):
    def projection(self, **options):
        return AnglePreservingProjection(dim=8, every=4, update=2, **options)

    def test_moves_on_schedule_and_lowers_its_loss(self):
        torch.manual_seed(0)
        net = self.net()
        comhe = CoMHE(net, AnglePreservingProjection(dim=8, every=None, update=3, lr=3.0))
        weights = [net[0].weight.detach().flatten(1)[None]]
        losses = []
        for _ in range(9):
            losses.append(comhe.projection.loss(weights, comhe.projection.basis_27).item())
            comhe.step()
        assert losses[0] == losses[2] > losses[3] == losses[5] > losses[6]


class TestUnrolled(ProjectionContract):
    def projection(self, **options):
        return AnglePreservingProjection(dim=8, every=4, update=2, mode="unrolled", **options)

    @pytest.mark.parametrize("preserve", ["cosine", "angle"])
    def test_differentiates_through_the_step(self, preserve):
        """Compare the full derivative with finite differences of the energy at P − η∂L_P/∂P."""
        layer = nn.Linear(6, 5).double()
        projection = AnglePreservingProjection(dim=3, mode="unrolled", lr=0.5, preserve=preserve)
        comhe = CoMHE(nn.Sequential(layer, nn.Linear(5, 3).double()), projection)

        def energy(weight):
            return torch.func.functional_call(_Value(comhe, layer), {"layer.weight": weight})

        weight = layer.weight.detach().clone().requires_grad_()
        assert torch.autograd.gradcheck(energy, weight)

    def test_the_second_order_part_is_there(self):
        layer = nn.Linear(6, 5).double()
        comhe = CoMHE(
            nn.Sequential(layer, nn.Linear(5, 3).double()), AnglePreservingProjection(dim=3, mode="unrolled", lr=5.0)
        )
        (whole,) = torch.autograd.grad(comhe.per_layer()["0"], layer.weight)
        basis = comhe.projection.basis_6.clone().requires_grad_()
        loss = comhe.projection.loss([layer.weight.detach()[None]], basis)
        stepped = (basis - 5.0 * torch.autograd.grad(loss, basis)[0]).detach()
        value = hyperspherical_energy(layer.weight @ stepped[0].T, half_space=True)
        assert value.item() == pytest.approx(comhe.per_layer()["0"].item(), rel=1e-9)
        (direct,) = torch.autograd.grad(value, layer.weight)
        assert (whole - direct).norm() > 1e-3 * whole.norm()


class _Value(nn.Module):
    def __init__(self, comhe, layer):
        super().__init__()
        self.layer, self.comhe = layer, comhe

    def forward(self):
        return self.comhe.per_layer()["0"]


@pytest.mark.parametrize("preserve", ["cosine", "angle"])
def test_the_loss_is_eq_6_6(preserve):
    w, p = torch.randn(1, 5, 6, dtype=torch.float64), torch.randn(1, 3, 6, dtype=torch.float64)
    projection = AnglePreservingProjection(dim=3, preserve=preserve)
    total = 0.0
    for i in range(5):
        for j in range(5):
            if i != j:
                before, after = (
                    torch.nn.functional.cosine_similarity(x[i], x[j], dim=0).item() for x in (w[0], w[0] @ p[0].T)
                )
                total += ((before - after) if preserve == "cosine" else (math.acos(before) - math.acos(after))) ** 2
    assert projection.loss([w], p).item() == pytest.approx(total / 20, rel=1e-5)


@pytest.mark.parametrize(("options", "message"), [({"lr": 0.0}, "lr must be"), ({"update": 0}, "update must be")])
def test_refuses(options, message):
    with pytest.raises(ValueError, match=message):
        AnglePreservingProjection(**options)


@pytest.mark.untyped
@pytest.mark.parametrize(
    ("options", "message"), [({"mode": "both"}, "mode must be"), ({"preserve": "sine"}, "preserve must be")]
)
def test_refuses_other_options(options, message):
    with pytest.raises(ValueError, match=message):
        AnglePreservingProjection(**options)
