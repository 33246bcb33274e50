import numpy as np
import pytest
import torch
from pytorch_metric_learning import distances, losses, miners

from hypersphere.objectives import EuclideanContrastive, EuclideanTriplet
from hypersphere.objectives.pairs.euclidean import NegativeDistance

from .contracts import PairContract, batch, gradients


def distance_matrix(x):
    x = x.detach().double().numpy()
    return np.sqrt(((x[:, None] - x) ** 2).sum(-1))


class EuclideanContract(PairContract):
    """The contract of losses over pairs, except that feature lengths matter."""

    def test_order_and_lengths_do_not_matter(self):
        loss = self.double()
        x, y = batch()
        order = torch.randperm(len(x))
        assert torch.allclose(loss(x, y), loss(x[order], y[order]), rtol=1e-12)
        assert not torch.allclose(loss(x, y), loss(3 * x, y))

    @pytest.mark.parametrize("chunk", [None, 4])
    @pytest.mark.parametrize("length", [0.0, 1e-20, 1e3])
    def test_extreme_lengths(self, length, chunk):
        x, y = batch(10, torch.float32)
        x[::2] *= length
        value, dx = gradients(self.double(chunk=chunk).float(), x, y)
        assert torch.isfinite(dx).all()
        assert np.isclose(value.item(), self.brute_force(self.double(), x, y), rtol=1e-4)


class TestEuclideanContrastive(EuclideanContract):
    needs_positives = False

    def make(self, **options):
        return EuclideanContrastive(**{"positive_margin": 0.1, "negative_margin": 3.0, **options})

    def brute_force(self, loss, x, y):
        d, terms = distance_matrix(x), {True: [], False: []}
        for i in range(len(y)):
            for j in range(len(y)):
                if i != j:
                    same = bool(y[i] == y[j])
                    excess = d[i, j] - loss.positive_margin if same else loss.negative_margin - d[i, j]
                    if excess > 0 or loss.average == "all":
                        terms[same].append(max(0.0, excess) ** loss.power)
        return sum(float(np.mean(values)) for values in terms.values() if values)


class TestEuclideanTriplet(EuclideanContract):
    def make(self, **options):
        return EuclideanTriplet(**{"margin": 0.7, **options})

    def brute_force(self, loss, x, y):
        d = distance_matrix(x) ** (2 if loss.squared else 1)
        y, n, values = y.tolist(), len(y), []
        for a in range(n):
            positives = [d[a, p] for p in range(n) if p != a and y[p] == y[a]]
            negatives = [d[a, q] for q in range(n) if y[q] != y[a]]
            if loss.mining == "hard" and positives and negatives:
                positives, negatives = [max(positives)], [min(negatives)]
            values += [max(0.0, p - q + loss.margin) for p in positives for q in negatives]
        values = [v for v in values if v > 0]
        return float(np.mean(values)) if values else 0.0


class TestHardSquared(TestEuclideanTriplet):
    def make(self, **options):
        return EuclideanTriplet(**{"margin": 0.7, "mining": "hard", "squared": True, **options})


@pytest.mark.filterwarnings("ignore:__array_wrap__:DeprecationWarning")
def test_agree_with_pytorch_metric_learning():
    x, y = batch(30)
    metric = distances.LpDistance(normalize_embeddings=False)
    mine = gradients(EuclideanContrastive(0.2, 2.5, power=1), x, y)
    theirs = gradients(losses.ContrastiveLoss(0.2, 2.5, distance=metric), x, y)
    for a, b in zip(mine, theirs, strict=True):
        assert torch.allclose(a, b, rtol=1e-7, atol=1e-9)
    other = x.clone().requires_grad_()
    peer = losses.TripletMarginLoss(margin=0.5, distance=metric)
    value = peer(other, y, miners.BatchHardMiner(distance=metric)(other, y))
    value.backward()
    mine = gradients(EuclideanTriplet(0.5, "hard"), x, y)
    assert torch.allclose(mine[0], value.detach(), rtol=1e-8)
    assert torch.allclose(mine[1], other.grad, rtol=1e-6, atol=1e-9)


def test_close_pairs_far_from_the_origin_keep_their_digits():
    x = torch.tensor([[1e4, 0.0], [1e4, 0.01]])
    assert NegativeDistance().compare(x, x)[0, 1].item() == pytest.approx(-0.01, rel=1e-4)
