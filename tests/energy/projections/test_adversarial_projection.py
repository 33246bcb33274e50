import pytest
import torch
from torch import nn

from hypersphere.energy import AdversarialProjection, CoMHE
from tests.energy.contracts import ProjectionContract


class TestAdversarial(ProjectionContract):
    def projection(self, **options):
        return AdversarialProjection(dim=8, every=20, lr=0.001, **options)

    def test_the_basis_climbs_the_energy(self):
        comhe = CoMHE(self.net(), AdversarialProjection(dim=8, count=2, every=None))
        values = [comhe().item()]
        for _ in range(5):
            comhe.step()
            values.append(comhe().item())
        assert values == sorted(values)
        assert values[-1] > values[0]

    def test_moves_by_its_rate_without_gradients_of_the_network(self):
        net = self.net()
        comhe = CoMHE(net, AdversarialProjection(dim=8, every=None, lr=0.05))
        before = comhe.projection.basis_27.clone()
        comhe.step()
        assert ((comhe.projection.basis_27 - before).norm() / before.norm()).item() == pytest.approx(0.05, rel=1e-4)
        assert not comhe.projection.basis_27.requires_grad
        assert all(p.grad is None for p in net.parameters())


def test_refuses():
    with pytest.raises(ValueError, match="lr must be"):
        AdversarialProjection(lr=-1.0)
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("dim", [2, 30])
def test_neurons_of_one_dimension_are_left_out(dim):
    model = nn.Sequential(nn.Linear(1, 5), nn.ReLU(), nn.Linear(5, 4))
    regularizer = CoMHE(model, projection=AdversarialProjection(dim=dim))
    total = sum(regularizer.terms(torch.tensor([0, 1])).values())
    total.backward()
    regularizer.step()
    assert total.isfinite()
    with pytest.raises(ValueError, match="neurons of one dimension have no angle"):
        CoMHE(nn.Sequential(nn.Linear(1, 5), nn.Linear(5, 1)), projection=AdversarialProjection(dim=dim))
