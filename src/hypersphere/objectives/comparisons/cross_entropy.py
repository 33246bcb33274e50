"""The cross-entropy of the softmax."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from .comparison_loss import Comparison, Reduce, State, Summary


class CrossEntropy(Comparison):
    r"""−log( e^t / (e^t + Σ_j e^{z_j}) ) = −log σ(t − log Σ_j e^{z_j})  (eq. 2.1): the softmax loss.

    The state is a running maximum m and Σ e^{z_j − m}. ``label_smoothing`` ε ∈ [0, 1) gives every class the target probability
    ε/C, which adds ε·(t − (t + Σ_j z_j)/C) to the loss, as in ``torch.nn.functional.cross_entropy``.

    >>> z, like = torch.tensor([[0.0, 1.0]]), torch.zeros(1)
    >>> softmax = CrossEntropy()
    >>> summary = softmax.finish(softmax.add(softmax.start(like), z))
    >>> softmax.loss(torch.tensor([2.0]), summary, 3)
    tensor([0.4076])
    """

    def __init__(self, label_smoothing: float = 0.0):
        super().__init__()
        if not 0 <= label_smoothing < 1:
            raise ValueError(f"label_smoothing must be in [0, 1), got {label_smoothing!r}")
        self.label_smoothing = float(label_smoothing)

    def start(self, like: Float[Tensor, "n"]) -> State:
        """Return the state of no classes: a very low maximum and sums of 0."""
        empty = (torch.full_like(like, torch.finfo(like.dtype).min / 2), torch.zeros_like(like))
        return (*empty, torch.zeros_like(like)) if self.label_smoothing else empty

    def add(self, state: State, z: Float[Tensor, "n c"], counts: Float[Tensor, "c"] | None = None) -> State:
        """Update the maximum, rescale the sum of exponentials to it, and add this block."""
        peak, mass, *total = state
        new = torch.maximum(peak, z.detach().amax(-1))
        mass = mass * (peak - new).exp() + _sum((z - new.unsqueeze(-1)).exp(), counts)
        return (new, mass, *[t + _sum(z.masked_fill(z == -torch.inf, 0), counts) for t in total])

    def reduce(self, state: State, reduce: Reduce) -> State:
        """Reduce the maximum, then rescale and add the sums of exponentials."""
        peak, mass, *total = state
        new = reduce(peak, "max")
        return (new, reduce(mass * (peak - new).exp(), "sum"), *[reduce(t, "sum") for t in total])

    def finish(self, state: State) -> Summary:
        """Return log Σ exp z, and Σ z with smoothing."""
        peak, mass, *total = state
        return (peak + mass.log(), *total)

    def of_all(self, z: Float[Tensor, "n c"]) -> Summary:
        """Return the summary by ``torch.logsumexp``."""
        total = (z.masked_fill(z == -torch.inf, 0).sum(-1),) if self.label_smoothing else ()
        return (z.logsumexp(-1), *total)

    def of_all_but_each(self, z: Float[Tensor, "n c"]) -> tuple[Float[Tensor, "n c"], ...]:
        """Subtract each class from the sum of exponentials; exclude the largest one before summing.

        Only the largest term may be nearly the whole sum, where a subtraction would lose all digits.
        """
        peak, largest = z.detach().max(-1, keepdim=True)
        terms = (z - peak).exp()
        rest = (terms.sum(-1, keepdim=True) - terms).scatter(1, largest, 1.0)
        below = z.scatter(1, largest, -torch.inf).logsumexp(-1, keepdim=True)
        others = (peak + rest.log()).scatter(1, largest, below)
        return (others, z.sum(-1, keepdim=True) - z) if self.label_smoothing else (others,)

    def of_all_with_slope(self, z: Float[Tensor, "n c"]) -> tuple[Summary, Callable[[Summary], Float[Tensor, "n c"]]]:
        """Compute the summary and its slope from the same exponentials."""
        total = (z.masked_fill(z == -torch.inf, 0).sum(-1),) if self.label_smoothing else ()
        bounds = torch.finfo(z.dtype)
        peak = z.amax(-1).clamp_(bounds.min / 2, bounds.max)  # finite also for infinite logits, to avoid ∞ − ∞
        terms = z.sub_(peak.unsqueeze(-1)).exp_()
        mass = terms.sum(-1)

        def slope(gradients: Summary) -> Tensor:
            d = terms.mul_((gradients[0] / mass).unsqueeze(-1))
            return d if len(gradients) == 1 else d.add_(gradients[1].unsqueeze(-1))

        return (peak.add_(mass.log()), *total), slope

    def slope(
        self,
        z: Float[Tensor, "n c"],
        summary: Summary,
        gradients: Summary,
        counts: Float[Tensor, "c"] | None = None,
    ) -> Float[Tensor, "n c"]:
        """Return the softmax of the others times ∂L/∂(log Σ exp z), and ∂L/∂Σz on each."""
        d = (z - summary[0].unsqueeze(-1)).exp_().mul_(gradients[0].unsqueeze(-1))
        if len(gradients) == 2:
            d.add_(gradients[1].unsqueeze(-1))
        return d if counts is None else d.mul_(counts)

    def loss(
        self, target: Float[Tensor, "n"], summary: Summary, num_classes: int | Float[Tensor, ""]
    ) -> Float[Tensor, "n"]:
        """Return −log σ(t − log Σ exp z), smoothed."""
        # −log σ(v) is softplus(−v). Beyond the threshold softplus returns −v, which is exact in float64.
        loss = F.softplus(summary[0] - target, threshold=40)
        if not self.label_smoothing:
            return loss
        return loss + self.label_smoothing * (target - (target + summary[1]) / num_classes)

    def loss_with_slopes(
        self, target: Float[Tensor, "n"], summary: Summary, num_classes: int | Float[Tensor, ""]
    ) -> tuple[Float[Tensor, "n"], Float[Tensor, "n"], Summary]:
        """Return the loss with the slope σ(log Σ exp z − t) by the summary and its negative by t, smoothed."""
        above = summary[0] - target
        loss, share = F.softplus(above, threshold=40), above.sigmoid_()
        if not self.label_smoothing:
            return loss, share.neg(), (share,)
        loss, each = self.loss(target, summary, num_classes), self.label_smoothing / num_classes
        return loss, self.label_smoothing - each - share, (share, torch.zeros_like(share) - each)

    def extra_repr(self) -> str:
        """Return the smoothing, if there is any."""
        return f"label_smoothing={self.label_smoothing:g}" if self.label_smoothing else ""


def _sum(terms: Float[Tensor, "n c"], counts: Float[Tensor, "c"] | None) -> Float[Tensor, "n"]:
    return terms.sum(-1) if counts is None else terms @ counts


def choose_comparison(comparison: Comparison | None, label_smoothing: float) -> Comparison:
    """Return the comparison, or the cross-entropy with label smoothing if it is None.

    Raises:
        ValueError: If label smoothing is combined with another comparison.

    >>> choose_comparison(None, 0.1)
    CrossEntropy(label_smoothing=0.1)
    """
    if comparison is None:
        return CrossEntropy(label_smoothing)
    if label_smoothing:
        raise ValueError(
            f"label_smoothing={label_smoothing!r} applies to the cross-entropy only, and the comparison is "
            f"{type(comparison).__name__}; set it to 0, or use comparison=CrossEntropy(label_smoothing)"
        )
    return comparison
