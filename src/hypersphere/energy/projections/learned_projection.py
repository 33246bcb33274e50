"""Learned projection (E.8)."""

from .adversarial_projection import AdversarialProjection


class LearnedProjection(AdversarialProjection):
    r"""min_W min_P of the projected energy: P and the neurons minimize the energy together.

    This is an ablation of Liu (2020, E.8) and is not recommended: its error on CIFAR-100 is 26.5 %, compared with 24.6 % for
    random projections and 25.96 % for half-space MHE without a projection. A basis that spreads the projected neurons by
    itself leaves nothing to learn for the neurons. :meth:`step` moves every basis as in :class:`AdversarialProjection`, but
    against its gradient.

    Args:
        dim: Dimension of the projected neurons.
        count: Number of bases.
        every: Steps between redraws; None, the default, never redraws the learned basis.
        lr: Length of a step relative to that of the basis.
        seed: Seed of the bases.

    >>> LearnedProjection(dim=20)
    LearnedProjection(dim=20, count=1, every=None, lr=0.01)
    """

    direction = -1.0

    def __init__(self, dim: int = 30, count: int = 1, every: int | None = None, *, lr: float = 0.01, seed: int = 0):
        super().__init__(dim, count, every, lr=lr, seed=seed)
