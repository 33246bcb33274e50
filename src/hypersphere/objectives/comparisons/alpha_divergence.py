r"""The loss of an α-divergence. Unlike in a softmax, classes far below the largest logit have probability 0.

**What is computed.** For a reference measure q ≥ 0 on the classes and f(u) = (u^α − αu + α − 1)/(α(α − 1)), the divergence is
D(p‖q) = Σ_j q_j·f(p_j/q_j). The probabilities and the Fenchel–Young loss (Blondel et al., 2020; Roulet et al., 2025) for logits z are

.. math:: p = \arg\max_p\; p·z − D(p‖q), \quad L = \max_p\, [p·z − D(p‖q)] + D(e_y‖q) − z_y

Setting the derivative of the Lagrangian to 0 gives p_j = q_j·[1 + (α − 1)(z_j − τ)]_+^{1/(α−1)}, where τ is chosen so that they sum to 1.
With the conjugate f*(v) = ([1 + (α−1)v]_+^{α/(α−1)} − 1)/α, the loss is

.. math:: L = τ − z_y + q_y·f^*(z_y − τ) + q_y·f(1/q_y) + \tfrac1α Σ_{j≠y} q_j·[1 + (α−1)(z_j − τ)]_+^{α/(α−1)}

and ∂L/∂z = p − e_y. The derivative of L with respect to τ is 0, so an error ε in τ changes the loss only by O(ε²).

**Sparsity.** All classes except the target have q_j = 1. Among them, p_j = 0 if z_j ≤ max z − 1/(α − 1). So only the logits
above this bound, the *candidates*, are kept from each block of classes. The exact loss over a million classes depends on a
few candidates.
"""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from .comparison_loss import Comparison, Reduce, State, Summary

NEWTON_STEPS = 24
"""Number of Newton steps for the threshold τ. Double precision needs 5 to 12."""


class AlphaDivergence(Comparison):
    r"""Fenchel–Young loss of the α-divergence, with reference measure ``prior`` on the target and 1 on the other classes.

    The limit α → 1 is the cross-entropy with the margin −log ``prior`` on the target's logit; α = 2 is sparsemax. Roulet et al. (2025,
    arXiv:2501.18537) recommend 1.5. Use it if only the nearest classes should contribute to the gradient.

    Args:
        alpha: α in (1, 2].
        prior: q_y in (0, 1]. With a value below 1, the target needs a larger logit for the same probability.

    Raises:
        ValueError: If ``alpha`` or ``prior`` is out of range.

    >>> sparsemax, z = AlphaDivergence(alpha=2.0), torch.tensor([[0.0, -5.0]])
    >>> summary = sparsemax.finish(sparsemax.add(sparsemax.start(torch.zeros(1)), z))
    >>> sparsemax.loss(torch.tensor([0.5]), summary, 3), sparsemax.loss(torch.tensor([1.0]), summary, 3)
    (tensor([0.0625]), tensor([0.]))
    """

    sums = False

    def __init__(self, alpha: float = 1.5, prior: float = 1.0):
        super().__init__()
        if not 1 < alpha <= 2:
            raise ValueError(f"alpha must be a number in (1, 2], got {alpha!r}; 1 is the cross-entropy")
        if not 0 < prior <= 1:
            raise ValueError(f"prior must be a number in (0, 1], got {prior!r}")
        self.alpha, self.prior = float(alpha), float(prior)

    def start(self, like: Float[Tensor, "n"]) -> State:
        """Return the state of no classes: a placeholder below every logit."""
        return (torch.full_like(like, _get_lowest(like)),)

    def add(self, state: State, z: Float[Tensor, "n c"], counts: Float[Tensor, "c"] | None = None) -> State:
        """Select the candidates among those of the state and the logits of this block."""
        return self._select(torch.cat([torch.stack(state, 1), z], 1))

    def reduce(self, state: State, reduce: Reduce) -> State:
        """Gather the candidates of all processes and select among them."""
        own = torch.stack(state, 1)
        total = int(reduce(own.new_tensor(float(len(state))), "sum"))
        padded = F.pad(own, (0, total - len(state)), value=_get_lowest(own))
        return self._select(reduce(padded.contiguous(), "top"))

    def finish(self, state: State) -> Summary:
        """Return the candidates, largest first. Samples with fewer candidates are padded with a number below every logit."""
        return state

    def of_all(self, z: Float[Tensor, "n c"]) -> Summary:
        """Select among all classes. Under torch.compile, return all classes: the number of candidates depends on the data."""
        if torch.compiler.is_compiling():
            return z.clamp_min(_get_lowest(z)).sort(1, descending=True).values.unbind(1)
        return self._select(z)

    def of_all_with_slope(self, z: Float[Tensor, "n c"]) -> tuple[Summary, Callable[[Summary], Float[Tensor, "n c"]]]:
        """Return the candidates and a function to ∂L/∂z, which reuses their positions instead of searching for them."""
        candidates, index = self._find_candidates(z)

        def slope(gradients: Summary) -> Tensor:
            by_candidate = torch.stack(gradients, 1).masked_fill(candidates == _get_lowest(z), 0)
            return torch.zeros_like(z).scatter_(1, index, by_candidate)

        return candidates.unbind(1), slope

    def slope(
        self,
        z: Float[Tensor, "n c"],
        summary: Summary,
        gradients: Summary,
        counts: Float[Tensor, "c"] | None = None,
    ) -> Float[Tensor, "n c"]:
        """Return ∂L/∂z. It is 0 except for candidates, which are recognized by the value of their logits."""
        ascending, by_candidate = torch.stack(summary[::-1], 1), torch.stack(gradients[::-1], 1)
        # Recomputed logits may differ in the last digits, so compare with a tolerance.
        tolerance = 64 * torch.finfo(z.dtype).eps * ascending[:, -1:].abs().clamp_min(1)
        lowest = torch.where(by_candidate != 0, ascending, torch.inf).amin(1, keepdim=True)
        row, column = (z >= lowest - tolerance).nonzero(as_tuple=True)
        logit, candidates, gradient = z[row, column].unsqueeze(1), ascending[row], by_candidate[row]
        above = torch.searchsorted(candidates, logit).clamp_max(candidates.shape[1] - 1)
        below = (above - 1).clamp_min(0)
        is_below_nearer = (logit - candidates.gather(1, below)) < (candidates.gather(1, above) - logit).abs()
        index = torch.where(is_below_nearer, below, above)
        is_equal = (candidates.gather(1, index) - logit).abs() <= tolerance[row]
        slopes = torch.where(is_equal, gradient.gather(1, index), 0).squeeze(1)
        return torch.zeros_like(z).index_put_((row, column), slopes)

    def loss(
        self, target: Float[Tensor, "n"], summary: Summary, num_classes: int | Float[Tensor, ""]
    ) -> Float[Tensor, "n"]:
        """Return the loss of each sample."""
        others = torch.stack(summary, 1)
        tau = self._threshold(target, others)
        own, rest = self._compute_base(target - tau), self._compute_base(others - tau.unsqueeze(1))
        power = self.alpha / (self.alpha - 1)
        conjugate = self.prior * (own**power - 1) / self.alpha + (rest**power).sum(1) / self.alpha
        return tau - target + conjugate + self._divergence_of_target()

    def loss_with_slopes(
        self, target: Float[Tensor, "n"], summary: Summary, num_classes: int | Float[Tensor, ""]
    ) -> tuple[Float[Tensor, "n"], Float[Tensor, "n"], Summary]:
        """Return the loss and its slopes, p_y − 1 for the target and p_j for the candidates."""
        with torch.no_grad():
            others = torch.stack(summary, 1)
            tau = self._threshold(target, others)
            power = 1 / (self.alpha - 1)
            by_target = self.prior * self._compute_base(target - tau) ** power - 1
            by_others = self._compute_base(others - tau.unsqueeze(1)) ** power
            return self.loss(target, summary, num_classes), by_target, by_others.unbind(1)

    def probabilities(self, z: Float[Tensor, "n c"]) -> Float[Tensor, "n c"]:
        """Return the probabilities of all classes without a margin, many of them exactly 0.

        Args:
            z: The logits of all classes.

        >>> AlphaDivergence(2.0).probabilities(torch.tensor([[1.0, 0.5, -1.0]]))
        tensor([[0.7500, 0.2500, 0.0000]])
        """
        tau = type(self)(self.alpha)._threshold(z[:, 0], z[:, 1:])
        return self._compute_base(z - tau.unsqueeze(1)) ** (1 / (self.alpha - 1))

    def extra_repr(self) -> str:
        """Return α and the prior."""
        return f"alpha={self.alpha:g}, prior={self.prior:g}"

    def _select(self, z: Float[Tensor, "n c"]) -> tuple[Tensor, ...]:
        """Return the candidates, sorted: the logits less than 1/(α − 1) below the largest, one tensor per position."""
        return self._find_candidates(z)[0].unbind(1)

    def _find_candidates(self, z: Float[Tensor, "n c"]) -> tuple[Float[Tensor, "n k"], Int[Tensor, "n k"]]:
        """Return the sorted candidates and their class indices."""
        with torch.no_grad():
            bound = z.amax(1, keepdim=True) - 1 / (self.alpha - 1)
            count = int((z > bound).sum(1).max()) if len(z) else 1
        candidates, index = z.topk(max(count, 1), 1)
        return candidates.masked_fill(candidates <= bound, _get_lowest(z)), index

    def _compute_base(self, v: Tensor) -> Tensor:
        """Return [1 + (α − 1)·v]_+, the base of the powers in p and f*."""
        return (1 + (self.alpha - 1) * v).clamp_min(0)

    def _divergence_of_target(self) -> float:
        """Return q_y·f(1/q_y), the term of D(e_y‖q) for the target class."""
        a, q = self.alpha, self.prior
        return (q ** (1 - a) - a + (a - 1) * q) / (a * (a - 1))

    def _threshold(self, target: Float[Tensor, "n"], others: Float[Tensor, "n k"]) -> Float[Tensor, "n"]:
        r"""Return τ, differentiable by autograd.

        With r = 1/(α − 1) and θ = τ − r, the sum of probabilities is Σ q_j·[(α−1)(z_j − θ)]_+^r. Its r-th root is a norm of
        positive parts, which is convex and decreases with θ. Newton's method solves norm = 1. It increases θ monotonically if it
        starts where the sum is at least 1: here at the largest θ at which one class alone has probability 1. Autograd records
        the last step only, which is sufficient for the derivative of τ.
        """
        a, q = self.alpha, self.prior
        r = 1 / (a - 1)
        z = torch.cat([target.unsqueeze(1), others], 1)
        # The r-th power of the target's factor q_y^{1/r} is q_y.
        weight = torch.ones_like(z)
        weight[:, 0] = q ** (1 / r)
        with torch.no_grad():
            theta = torch.maximum(target - r * q ** (-1 / r), others.amax(1) - r)
            for _ in range(NEWTON_STEPS):
                theta = theta + self._newton_step(z, weight, theta, r)
        # The sum of probabilities is now 1. One more step, with its slope held constant, has the derivative of the root.
        parts = weight * ((a - 1) * (z - theta.unsqueeze(1))).clamp_min(0)
        total = (parts**r).sum(1)
        decrease = (a - 1) * r * (weight.detach() * parts.detach() ** (r - 1) * (parts.detach() > 0)).sum(1)
        return theta + (total - 1) / decrease + r

    def _newton_step(self, z: Tensor, weight: Tensor, theta: Tensor, r: float) -> Tensor:
        """Return the Newton step for (Σ parts^r)^{1/r} = 1. Dividing by the largest part avoids overflow."""
        parts = weight * ((self.alpha - 1) * (z - theta.unsqueeze(1))).clamp_min(0)
        largest = parts.amax(1, keepdim=True)
        share = parts / largest
        norm = (share**r).sum(1) ** (1 / r)
        decrease = (self.alpha - 1) * norm ** (1 - r) * (weight * share ** (r - 1) * (share > 0)).sum(1)
        return (largest.squeeze(1) * norm - 1).clamp_min(0) / decrease


def _get_lowest(like: Tensor) -> float:
    """Return the placeholder for a missing candidate: a finite number below every logit."""
    return torch.finfo(like.dtype).min / 2


def margin_to_prior(margin: float, alpha: float) -> float:
    r"""Return the reference measure q_y that requires the target's logit to exceed the others by an additional ``margin``.

    The loss is 0 if the target's logit exceeds all others by (q_y^{1−α} − 1)/(α − 1) + 1/(α − 1). The first term is the margin:
    q_y = (1 + (α − 1)·margin)^{−1/(α−1)}, and e^{−margin} for α → 1.

    Args:
        margin: Margin in units of the logits, ≥ 0.
        alpha: α > 1.

    Returns:
        q_y in (0, 1].

    >>> margin_to_prior(3.0, 2.0)
    0.25
    """
    if not 0 <= margin < math.inf:
        raise ValueError(f"margin must be a number ≥ 0, got {margin!r}")
    return (1 + (alpha - 1) * margin) ** (-1 / (alpha - 1))
