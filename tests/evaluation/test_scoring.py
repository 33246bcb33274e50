import math

import pytest
import torch

from hypersphere.evaluation import ASNorm, CosineScore, MutualLikelihood, QMagFace
from hypersphere.evaluation.scoring import score_pairs


def cosine(a, b):
    return float(a.double() @ b.double() / (a.double().norm() * b.double().norm()))


class ScoreContract:
    score = CosineScore()

    def expected(self, a, b):
        return cosine(a, b)

    @pytest.fixture
    def features(self):
        return torch.randn(6, 4) * torch.tensor([0.1, 1.0, 3.0, 10.0, 20.0, 40.0])[:, None], torch.randn(5, 4)

    def test_agrees_with_its_formula(self, features):
        first, second = features
        got = self.score(first, second)
        assert got.dtype == torch.float64
        expected = torch.tensor([[self.expected(a, b) for b in second] for a in first], dtype=torch.float64)
        torch.testing.assert_close(got, expected, atol=1e-9, rtol=1e-6)

    def test_is_symmetric_and_the_same_in_pairs(self, features):
        first, second = features
        matrix = self.score(first, second)
        torch.testing.assert_close(self.score(second, first).T, matrix)
        rows, others = self.score.rows(first)[:5], self.score.rows(second)
        torch.testing.assert_close(self.score.score_pairs(rows, others), matrix[:5].diagonal())
        index = torch.tensor([[0, 1], [3, 4], [5, 5]])
        every = self.score.rows(first)
        whole = self.score.matrix(every, every)
        torch.testing.assert_close(score_pairs(self.score, every, index, chunk=2), whole[index[:, 0], index[:, 1]])

    def test_refuses_nonfinite_features(self):
        with pytest.raises(ValueError, match="first must be finite"):
            self.score(torch.full((2, 4), torch.nan), torch.eye(4))


class TestCosineScore(ScoreContract):
    pass


class TestQMagFace(ScoreContract):
    score = QMagFace(0.2, 0.3)

    def expected(self, a, b):
        cos = cosine(a, b)
        return cos + min(0.0, 0.3 * cos - 0.2) * min(float(a.norm()), float(b.norm()))

    def test_refuses(self):
        with pytest.raises(ValueError, match="alpha and beta must be numbers > 0"):
            QMagFace(alpha=0.0)


COHORT = torch.randn(9, 4, generator=torch.Generator().manual_seed(1))


class TestASNorm(ScoreContract):
    score = ASNorm(COHORT, top=4)

    def expected(self, a, b):
        s, parts = cosine(a, b), []
        for x in (a, b):
            best = sorted((cosine(x, c) for c in COHORT), reverse=True)[:4]
            mean = sum(best) / 4
            parts.append((s - mean) / math.sqrt(sum((v - mean) ** 2 for v in best) / 3))
        return sum(parts) / 2

    def test_uses_all_scores_of_a_small_cohort(self):
        assert ASNorm(COHORT, top=300).top == 9

    def test_refuses(self):
        with pytest.raises(ValueError, match="top and the cohort's size must be integers ≥ 2"):
            ASNorm(COHORT[:1])
        with pytest.raises(ValueError, match="got a standard deviation of 0"):
            ASNorm(torch.ones(3, 2))(torch.eye(2), torch.eye(2))


class TestMutualLikelihood(ScoreContract):
    score = MutualLikelihood(0.5)

    @pytest.fixture
    def features(self):
        return torch.randn(6, 3) * torch.tensor([0.1, 1.0, 3.0, 10.0, 20.0, 40.0])[:, None], torch.randn(5, 3)

    def expected(self, a, b):
        """In three dimensions κ/(4π sinh κ) is the normalizer."""

        def log_c(kappa):
            return math.log(kappa / (2 * math.pi)) - kappa - math.log1p(-math.exp(-2 * kappa))

        a, b = 0.5 * a.double(), 0.5 * b.double()
        product = log_c(float(a.norm())) + log_c(float(b.norm())) - log_c(float((a + b).norm()))
        return product + math.log(4 * math.pi)  # relative to the uniform distribution

    def test_refuses_nonfinite_features(self):
        with pytest.raises(ValueError, match="first must be finite"):
            self.score(torch.full((2, 3), torch.nan), torch.eye(3))

    def test_a_feature_of_length_zero_has_a_score_of_zero(self):
        scores = self.score(torch.zeros(1, 16), torch.randn(4, 16))
        torch.testing.assert_close(scores, torch.zeros(1, 4, dtype=torch.float64), atol=1e-9, rtol=0)

    def test_refuses(self):
        with pytest.raises(ValueError, match="scale must be a number > 0"):
            MutualLikelihood(-1.0)
