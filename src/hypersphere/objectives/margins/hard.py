"""Margins that depend on the other classes: those that violate the margin, or the nearest k."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from ...angular import Cosine
from ...geometry import arccos
from .additive import AdditiveAngle, AdditiveCosine
from .margin import COSINE, EMPTY_CONTEXT, Context, Margin, Sloped
from .statistics import compute_mean


class Around(Margin):
    """A margin with ψ and the penalty of another margin. Derived classes change φ, the score of the other classes."""

    def __init__(self, margin: Margin):
        super().__init__()
        self.margin = margin

    def target(self, cos: Float[Tensor, "n"], context: Context = EMPTY_CONTEXT) -> Float[Tensor, "n"]:
        """Return ψ of the inner margin."""
        return self.margin.target(cos, context)

    def target_with_slope(self, cos: Float[Tensor, "n"], context: Context = EMPTY_CONTEXT) -> Sloped | None:
        """Return ψ of the inner margin and its slope."""
        return self.margin.target_with_slope(cos, context)

    def penalty(self, context: Context) -> Float[Tensor, "n"] | None:
        """Return the result of the inner margin."""
        return self.margin.penalty(context)

    def warning(self) -> str | None:
        """Return the result of the inner margin."""
        return self.margin.warning()


class Curricular(Around):
    r"""φ(θ_j) = cos θ_j·(t + cos θ_j) where cos θ_j > ψ(θ_y), else cos θ_j: CurricularFace (Huang et al., 2020).

    t is a running mean of the targets' cosines, t ← ``momentum``·mean + (1 − ``momentum``)·t in training mode. Early in training
    it is near 0, so hard classes have a small weight; later their weight grows. ψ is that of ``margin``, which must not have
    running statistics. The default is the additive angle 0.5.

    >>> margin = Curricular()
    >>> _ = margin.target(torch.tensor([0.5, 0.7]))
    >>> round(margin.t.item(), 4)
    0.006
    """

    t: Tensor

    def __init__(self, margin: Margin | None = None, momentum: float = 0.01):
        if not 0 < momentum <= 1:
            raise ValueError(f"momentum must be a number in (0, 1], got {momentum!r}")
        super().__init__(AdditiveAngle(0.5) if margin is None else margin)
        self.momentum = float(momentum)
        self.register_buffer("t", torch.tensor(0.0))

    def target(self, cos: Float[Tensor, "n"], context: Context = EMPTY_CONTEXT) -> Float[Tensor, "n"]:
        """Return ψ of the inner margin. In training mode, update t from the batch."""
        self._update_mean(cos, context)
        return super().target(cos, context)

    def target_with_slope(self, cos: Float[Tensor, "n"], context: Context = EMPTY_CONTEXT) -> Sloped | None:
        """Return ψ of the inner margin and its slope. In training mode, update t from the batch."""
        if not isinstance(context.g, Cosine):
            return None  # as others_with_slope: the head then calls both plain hooks, and t is updated only once
        score = super().target_with_slope(cos, context)
        if score is not None:
            self._update_mean(cos, context)
        return score

    def others(self, cos: Float[Tensor, "n c"], context: Context = EMPTY_CONTEXT) -> Float[Tensor, "n c"]:
        """Return g(θ_j)·(t + cos θ_j) for the hard classes."""
        g, hard = context.g(cos), _mark_harder(self.margin, cos.detach(), context)
        return torch.addcmul(g, g, (cos + (self.t.to(cos.dtype) - 1)).mul_(hard))

    def others_with_slope(self, cos: Float[Tensor, "n c"], context: Context = EMPTY_CONTEXT) -> Sloped | None:
        """Return the scores and, with g = cos, their slopes: t + 2·cos θ_j for hard classes, 1 for the others."""
        if not isinstance(context.g, Cosine):
            return None
        hard = _mark_harder(self.margin, cos, context)
        more = (cos + (self.t.to(cos.dtype) - 1)).mul_(hard)
        return torch.addcmul(cos, cos, more), more.addcmul_(cos, hard).add_(1)

    def _update_mean(self, cos: Tensor, context: Context) -> None:
        if self.training:
            self.t.lerp_(compute_mean(cos, context, self.t), self.momentum)

    def extra_repr(self) -> str:
        """Return the momentum of t."""
        return f"momentum={self.momentum:g}"


class Misclassified(Around):
    r"""φ(θ_j) = t·cos θ_j + t − 1 where cos θ_j > ψ(θ_y), else cos θ_j: MV-Softmax (Wang et al., 2020).

    ``t`` > 1 increases the scores of classes that exceed the target's; t = 1 changes nothing. ψ is that of ``margin``, which
    must not have running statistics. The default is the additive cosine 0.35.

    >>> context = hs.objectives.margins.Context(target=torch.tensor([[0.5]]))
    >>> Misclassified(t=1.2).others(torch.tensor([[0.1, 0.5]]), context)
    tensor([[0.1000, 0.8000]])
    """

    def __init__(self, margin: Margin | None = None, t: float = 1.12):
        if not 1 <= t < math.inf:
            raise ValueError(f"t must be a number ≥ 1, got {t!r}")
        super().__init__(AdditiveCosine(0.35) if margin is None else margin)
        self.t = float(t)

    def others(self, cos: Float[Tensor, "n c"], context: Context = EMPTY_CONTEXT) -> Float[Tensor, "n c"]:
        """Return t·g(θ_j) + t − 1 for the hard classes."""
        g, hard = context.g(cos), _mark_harder(self.margin, cos.detach(), context)
        return g + hard * (g + 1) * (self.t - 1)

    def others_with_slope(self, cos: Float[Tensor, "n c"], context: Context = EMPTY_CONTEXT) -> Sloped | None:
        """Return the scores and, with g = cos, their slopes: t for hard classes, 1 for the others."""
        if not isinstance(context.g, Cosine):
            return None
        more = _mark_harder(self.margin, cos, context).mul_(self.t - 1)
        return torch.addcmul(cos, cos + 1, more), more.add_(1)

    def extra_repr(self) -> str:
        """Return the weight of hard classes."""
        return f"t={self.t:g}"


class InterTopK(Around):
    r"""φ(θ_j) = cos(max(θ_j − m, 0)) for the k other classes nearest to a sample, else cos θ_j.

    It is the inter-top-k penalty of speaker recognition (Zhao et al., 2022), where k = 5 and m = 0.06 are usual. ψ is that of
    ``margin``; the default is the additive angle 0.2.

    >>> context = hs.objectives.margins.Context(hardest=torch.tensor([[0.5]]))
    >>> InterTopK(k=1, m=torch.pi / 6).others(torch.tensor([[0.1, 0.5]]), context)
    tensor([[0.1000, 0.8660]])
    """

    def __init__(self, margin: Margin | None = None, k: int = 5, m: float = 0.06):
        if isinstance(k, bool) or k < 1:
            raise ValueError(f"k must be an integer ≥ 1, got {k!r}")
        if not 0 <= m < math.pi:
            raise ValueError(f"margin m must be a number ≥ 0 and below 3.14159, got {m!r}")
        super().__init__(AdditiveAngle(0.2) if margin is None else margin)
        self.hardest, self.m = k, float(m)

    def others(self, cos: Float[Tensor, "n c"], context: Context = EMPTY_CONTEXT) -> Float[Tensor, "n c"]:
        """Return g(θ_j − m) for the k nearest."""
        assert context.hardest is not None
        nearer = context.g.at((arccos(cos) - self.m).clamp_min(0))
        return torch.where(cos >= context.hardest, nearer, context.g(cos))

    def extra_repr(self) -> str:
        """Return the number of classes and the margin."""
        return f"k={self.hardest}, m={self.m:g}"


def _mark_harder(margin: Margin, cos: Tensor, context: Context) -> Tensor:
    """Return 1 for classes that score higher than the target and 0 for the others.

    On a CPU, numbers are 20 times faster to use than a mask.
    """
    return cos.clone().gt_(_compute_target_score(margin, context))


def _compute_target_score(margin: Margin, context: Context) -> Tensor:
    """Return ψ(θ_y) as a cosine; a class with a larger cosine is hard."""
    assert context.target is not None
    norms, labels = (None if t is None else t.squeeze(-1) for t in (context.norms, context.labels))
    noise = None if context.noise is None else {strength: z.squeeze(-1) for strength, z in context.noise.items()}
    with torch.no_grad():
        inner = Context(COSINE, norms=norms, labels=labels, noise=noise)  # PyTorch 2.6 does not compile the default
        return margin.target(context.target.squeeze(-1), inner).unsqueeze(-1)
