import math

import numpy as np
import pytest
import torch
from scipy.special import gammaln, ive

from hypersphere.geometry import uniform
from hypersphere.objectives import VMFSoftmax
from tests.objectives.contracts import HeadContract


def log_mean_exponential(kappa, dim):
    order = dim / 2 - 1
    return math.log(ive(order, kappa)) + kappa + order * math.log(2 / kappa) + gammaln(dim / 2)


class TestVonMisesFisher(HeadContract):
    scale = 8.0
    gain = 3.0

    def head(self, **options):
        torch.manual_seed(1)
        return VMFSoftmax(5, 11, scale=self.scale, gain=self.gain, **options)

    @pytest.mark.skipif(torch.__version__.startswith("2.6."), reason="PyTorch 2.6 compiles this for minutes")
    @pytest.mark.untyped
    def test_compiles_as_one_graph(self):
        super().test_compiles_as_one_graph()

    def score(self, theta, length):
        kappa = min(max(self.gain * length, 1e-9), 1e6)
        rho = math.sqrt((kappa - self.scale) ** 2 + 2 * kappa * self.scale * (1 + math.cos(theta)))
        return (log_mean_exponential(max(rho, 1e-6), 5) - log_mean_exponential(kappa, 5)) / self.scale

    def target_of(self, theta, length, label):
        self.of_target = float(np.cos(theta)), self.score(theta, length)
        return self.of_target[1]

    def other_of(self, theta, thetas, label, length):
        return self.score(theta, length)

    def penalty_of(self, length):
        kappa = min(max(self.gain * length, 1e-9), 1e6)
        cos, score = self.of_target
        return self.scale * (score - cos * ive(2.5, kappa) / ive(1.5, kappa))


def draw(mu, kappa, count):
    """Directions of a von Mises–Fisher distribution on S², by inversion of the cosine's distribution."""
    u = torch.rand(count, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    t = 1 + torch.log(u + (1 - u) * math.exp(-2 * kappa)) / kappa
    side = uniform(count, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    side = torch.nn.functional.normalize(side - (side @ mu)[:, None] * mu, dim=1)
    return t[:, None] * mu + (1 - t * t).clamp_min(0).sqrt()[:, None] * side


def test_is_an_upper_bound_of_the_expected_cross_entropy_and_close_to_it():
    head = VMFSoftmax(3, 4, scale=5.0, gain=1.0, dtype=torch.float64, reduction="none")
    x, y = torch.tensor([[0.0, 3.0, 4.0], [20.0, 0.0, 0.0]], dtype=torch.float64), torch.tensor([0, 3])
    w = torch.nn.functional.normalize(head.weight.detach(), dim=1)
    for row, label, bound in zip(x, y, head(x, y), strict=True):
        z = draw(row / row.norm(), float(row.norm()), 200_000)
        expected = torch.nn.functional.cross_entropy(5 * z @ w.T, label.expand(len(z)))
        assert expected <= bound + 0.005
        assert bound < expected + 1.0


def test_probabilities_are_of_the_expected_scores_and_know_what_is_unsure():
    head = VMFSoftmax(3, 4, scale=5.0, gain=1.0)
    x = torch.tensor([[0.6, 0.0, 0.8]])
    sharp, flat = head.probabilities(1000 * x), head.probabilities(0.1 * x)
    assert torch.allclose(sharp, head.logits(x).softmax(1), atol=1e-2)
    assert flat.std() < 0.1 * sharp.std()
    assert torch.equal(sharp.argmax(1), head.predict(x))
    assert torch.allclose(head.concentration(x), torch.ones(1))


def test_soft_targets_are_refused():
    from hypersphere.objectives import Targets

    with pytest.raises(ValueError, match="soft targets need a margin on the target alone"):
        VMFSoftmax(3, 2)(torch.eye(3), Targets(soft=torch.full((3, 2), 0.5)))


@pytest.mark.parametrize("options", [{"scale": 0.0}, {"gain": 0.0}, {"gain": math.inf}])
def test_refuses(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        VMFSoftmax(5, 11, **options)
