import torch

from hypersphere.energy import AdversarialProjection, CoMHE, LearnedProjection
from tests.energy.contracts import ProjectionContract


class TestLearned(ProjectionContract):
    def projection(self, **options):
        return LearnedProjection(dim=8, lr=0.001, **options)

    def test_the_basis_descends_the_energy(self):
        comhe = CoMHE(self.net(), LearnedProjection(dim=8, count=2))
        values = [comhe().item()]
        for _ in range(5):
            comhe.step()
            values.append(comhe().item())
        assert values == sorted(values, reverse=True)
        assert values[-1] < values[0]

    def test_is_the_opposite_of_the_adversary(self):
        net = self.net()
        learned, adversary = (
            CoMHE(net, kind(dim=8, every=None)) for kind in (LearnedProjection, AdversarialProjection)
        )
        start = learned.projection.basis_27.clone()
        for comhe in (learned, adversary):
            comhe.step()
        assert torch.allclose(learned.projection.basis_27 - start, start - adversary.projection.basis_27, atol=1e-7)
