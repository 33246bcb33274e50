"""Scores of pairs of features: the cosine, and scores that also use norms or an impostor cohort."""

from abc import ABC, abstractmethod

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..geometry import matmul, norm, normalize
from .concentration import log_normalizer


class Score(ABC):
    """A score of pairs of features, higher for the same identity.

    :meth:`rows` computes once per feature everything that comparisons need. :meth:`matrix` then compares rows with each
    other. :func:`open_set_report`, :func:`retrieval` and galleries accept any score.

    >>> class Nearness(Score):
    ...     def rows(self, features, name="features"):
    ...         return features.double()
    ...     def matrix(self, first, second):
    ...         return -torch.cdist(first, second)
    >>> Nearness()(torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 2.0], [4.0, 4.0]])).tolist()
    [[-2.0, -5.0]]
    """

    unit: str = "score"
    """Unit of scores and thresholds; ``"cosine"`` if scores are cosines."""

    @abstractmethod
    def rows(self, features: Float[Tensor, "n d"], name: str = "features") -> Float[Tensor, "n k"]:
        """Return one row per feature, in float64; raise a ``ValueError`` that contains ``name`` for NaN and infinity."""

    @abstractmethod
    def matrix(self, first: Float[Tensor, "n k"], second: Float[Tensor, "m k"]) -> Float[Tensor, "n m"]:
        """Return the scores of all pairs of a row of ``first`` and a row of ``second``."""

    def score_pairs(
        self, first: Float[Tensor, "n k"], second: Float[Tensor, "n k"], chunk: int = 256
    ) -> Float[Tensor, "n"]:
        """Return the scores of row i of ``first`` with row i of ``second``."""
        parts = zip(first.split(chunk), second.split(chunk), strict=True)
        return torch.cat([first.new_empty(0), *(self.matrix(a, b).diagonal() for a, b in parts)])

    def estimate_rows(self, rows: Float[Tensor, "n k"]) -> tuple[Float[Tensor, "n k"], float]:
        """Return rows that make :meth:`matrix` faster but less precise, and a bound on the error of these estimates.

        Override it if a lower precision is faster and its error has a strict bound. By default the rows are returned
        unchanged, with an error of 0.

        Args:
            rows: Rows from :meth:`rows`.

        Returns:
            The rows to estimate with, and the largest absolute difference of an estimate from the score.
        """
        return rows, 0.0

    def __call__(self, first: Float[Tensor, "n d"], second: Float[Tensor, "m d"]) -> Float[Tensor, "n m"]:
        """Return the scores of all pairs of a feature of ``first`` and a feature of ``second``, in float64."""
        return self.matrix(self.rows(first, "first"), self.rows(second, "second"))


class CosineScore(Score):
    """The cosine of the angle between two features.

    >>> CosineScore()(torch.eye(2), torch.tensor([[1.0, 0.0]])).tolist()
    [[1.0], [0.0]]
    """

    unit = "cosine"

    def rows(self, features: Float[Tensor, "n d"], name: str = "features") -> Float[Tensor, "n d"]:
        """Return the directions."""
        return normalize(_check_finite(features, name))

    def matrix(self, first: Float[Tensor, "n d"], second: Float[Tensor, "m d"]) -> Float[Tensor, "n m"]:
        """Return inner products of directions."""
        return matmul(first, second.T)

    def estimate_rows(self, rows: Float[Tensor, "n d"]) -> tuple[Float[Tensor, "n d"], float]:
        """Return the directions in float32 on a CPU, where this is faster. Otherwise return the rows unchanged.

        In any order of summation, an inner product in float32 differs from the exact one by at most d·u·Σ|xᵢyᵢ| ≤ d·u, where
        u = 2⁻²⁴. Rounding the two rows to float32 adds 2·u. The bound includes a margin for terms of order u².
        """
        if rows.device.type != "cpu" or torch.get_float32_matmul_precision() != "highest":
            return rows, 0.0
        return rows.float(), (rows.shape[1] + 4) * 2.0**-24

    def score_pairs(
        self, first: Float[Tensor, "n d"], second: Float[Tensor, "n d"], chunk: int = 4096
    ) -> Float[Tensor, "n"]:
        """Return inner products of directions, row by row."""
        parts = zip(first.split(chunk), second.split(chunk), strict=True)
        return torch.cat([first.new_empty(0), *((a * b).sum(1) for a, b in parts)])


class QMagFace(Score):
    """cos θ + min(0, β·cos θ − α)·min(‖x₁‖, ‖x₂‖), where the length of a feature is the quality of its image.

    A low cosine between two good images is stronger evidence of two identities than a low cosine between a good and a bad
    image. Therefore cosines below α/β are reduced, in proportion to the lower of the two qualities. The defaults were
    published for MagFace features, whose lengths lie in 10 … 110. For another network, fit α and β to its features.

    Args:
        alpha: α > 0.
        beta: β > 0.

    >>> score = QMagFace()
    >>> x = torch.tensor([[10.0, 0.0], [0.0, 20.0]])
    >>> score(x, x).round(decimals=3).tolist()
    [[1.0, -0.774], [-0.774, 1.0]]
    """

    def __init__(self, alpha: float = 0.0774, beta: float = 0.1259):
        if not (alpha > 0 and beta > 0):
            raise ValueError(f"alpha and beta must be numbers > 0, got {alpha!r} and {beta!r}")
        self.alpha, self.beta = alpha, beta

    def rows(self, features: Float[Tensor, "n d"], name: str = "features") -> Float[Tensor, "n k"]:
        """Return directions and lengths."""
        x = _check_finite(features, name)
        return torch.cat([normalize(x), norm(x, keepdim=True)], 1)

    def matrix(self, first: Float[Tensor, "n k"], second: Float[Tensor, "m k"]) -> Float[Tensor, "n m"]:
        """Return the scores of all pairs."""
        cos = first[:, :-1] @ second[:, :-1].T
        return cos + (self.beta * cos - self.alpha).clamp_max(0) * torch.minimum(first[:, -1:], second[:, -1])


class ASNorm(Score):
    """½·((s − μ₁)/σ₁ + (s − μ₂)/σ₂): adaptive symmetric normalization of a score by an impostor cohort.

    μ and σ of a feature are the mean and the standard deviation (with n − 1) of its ``top`` highest scores in the cohort. A
    feature that resembles many impostors needs a higher score s for the same result. The cohort must not contain
    evaluation identities. Avoid training identities too: the network separates them better than new people.

    Args:
        cohort: Features ``(c, d)`` of impostors, at least two.
        top: Number of the highest scores to use; a smaller cohort uses all scores.
        score: Score to normalize, the cosine by default.

    >>> score = ASNorm(torch.eye(3), top=2)
    >>> score(torch.tensor([[1.0, 0.2, 0.1]]), torch.tensor([[1.0, 0.1, 0.2]])).round(decimals=2).tolist()
    [[0.73]]
    """

    def __init__(self, cohort: Float[Tensor, "c d"], top: int = 300, score: Score | None = None):
        if top < 2 or len(cohort) < 2:
            raise ValueError(f"top and the cohort's size must be integers ≥ 2, got {top!r} and {len(cohort)}")
        self.top, self.score = min(top, len(cohort)), CosineScore() if score is None else score
        self.cohort = self.score.rows(cohort, "cohort")

    def rows(self, features: Float[Tensor, "n d"], name: str = "features", chunk: int = 1024) -> Float[Tensor, "n k"]:
        """Return the rows of the score, and μ and σ of each feature."""
        rows = self.score.rows(features, name)
        cohort = self.cohort.to(rows.device)
        highest = torch.cat([self.score.matrix(part, cohort).topk(self.top, 1).values for part in rows.split(chunk)])
        deviation = highest.std(1, keepdim=True)
        if not (deviation > 0).all():
            raise ValueError(f"{name} must have different scores with the cohort, got a standard deviation of 0")
        return torch.cat([rows, highest.mean(1, keepdim=True), deviation], 1)

    def matrix(self, first: Float[Tensor, "n k"], second: Float[Tensor, "m k"]) -> Float[Tensor, "n m"]:
        """Return the scores of all pairs."""
        s = self.score.matrix(first[:, :-2], second[:, :-2])
        return ((s - first[:, -2:-1]) / first[:, -1:] + (s - second[:, -2]) / second[:, -1]) / 2


class MutualLikelihood(Score):
    """log ∫ vMF(z; x̂₁, κ₁)·vMF(z; x̂₂, κ₂) dz with κ = ``scale``·‖x‖, relative to the uniform distribution.

    Each feature represents a von Mises–Fisher distribution of directions around x̂ with the concentration κ. With its
    normalizer C_d, the integral is C_d(κ₁)·C_d(κ₂)/C_d(‖κ₁x̂₁ + κ₂x̂₂‖). The score of an uncertain image (a small κ) is near 0,
    and it is 0 for κ = 0.

    >>> score = MutualLikelihood()
    >>> sure, unsure = torch.tensor([[20.0, 0.0, 0.0]]), torch.tensor([[0.0, 0.1, 0.0]])
    >>> float(score(sure, sure)) > 1 > abs(float(score(sure, unsure)))
    True
    """

    unit = "nats"

    def __init__(self, scale: float = 1.0):
        if not scale > 0:
            raise ValueError(f"scale must be a number > 0, got {scale!r}")
        self.scale = scale

    def rows(self, features: Float[Tensor, "n d"], name: str = "features") -> Float[Tensor, "n k"]:
        """Return κ·x̂, κ and log C_d(κ) − log C_d(0)."""
        x = self.scale * _check_finite(features, name)
        kappa, zero = norm(x, keepdim=True), x.new_zeros(1)
        return torch.cat([x, kappa, log_normalizer(kappa, x.shape[1]) - log_normalizer(zero, x.shape[1])], 1)

    def matrix(self, first: Float[Tensor, "n k"], second: Float[Tensor, "m k"]) -> Float[Tensor, "n m"]:
        """Return the scores of all pairs."""
        dim = first.shape[1] - 2
        squares = first[:, dim : dim + 1].square() + second[:, dim].square() + 2 * first[:, :dim] @ second[:, :dim].T
        both = log_normalizer(squares.clamp_min(0).sqrt(), dim) - log_normalizer(first.new_zeros(1), dim)
        return first[:, -1:] + second[:, -1] - both


def score_pairs(
    score: Score, rows: Float[Tensor, "n k"], index: Int[Tensor, "pairs 2"], chunk: int = 4096
) -> Float[Tensor, "pairs"]:
    """Return the scores of pairs of ``rows`` from :meth:`Score.rows`, computed for ``chunk`` pairs at a time."""
    parts = (part.to(rows.device) for part in index.split(chunk))
    return torch.cat([rows.new_empty(0), *(score.score_pairs(rows[part[:, 0]], rows[part[:, 1]]) for part in parts)])


def _check_finite(features: Float[Tensor, "n d"], name: str) -> Float[Tensor, "n d"]:
    if not features.isfinite().all():
        raise ValueError(f"{name} must be finite, got NaN or infinity")
    return features.detach().double()
