"""The exact ROC of any number of different pairs in bounded memory."""

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from .roc import Roc


class StreamedRoc:
    """Count different pairs chunk by chunk against the scores of the same pairs, and give the exact ROC.

    Same pairs are few (mates), different pairs are many (every probe against a million distractors). The curve has a
    corner only where a same pair lies, so it is enough to count, between every two neighboring scores of same pairs,
    how many different pairs fall there: memory grows with the same pairs alone, and nothing is binned or rounded.
    Every figure of the :class:`Roc` (AUC, EER, TAR at any FAR) equals that of keeping all scores.

    Args:
        same: The scores of all same pairs ``(m,)``, finite.
        at: Further scores at which the curve gets a point, for reading rates at given thresholds.

    >>> stream = StreamedRoc(torch.tensor([0.9, 0.8]))
    >>> for chunk in (torch.tensor([0.8, 0.1]), torch.tensor([0.85])):
    ...     stream.update(chunk)
    >>> roc = stream.roc()
    >>> float(roc.auc), roc.negatives
    (0.75, 3)
    """

    def __init__(self, same: Shaped[Tensor, "m"], at: Shaped[Tensor, "k"] | None = None):
        same = _check("same", same)
        if not len(same):
            raise ValueError("same must hold at least one score, got none")
        cuts = same if at is None else torch.cat([same, _check("at", at).to(same.device)])
        self.cuts = cuts.unique()  # ascending
        self.same = torch.bincount(torch.searchsorted(self.cuts, same), minlength=len(self.cuts))
        # Place 2i is between cut i − 1 and cut i, place 2i + 1 on cut i.
        self.counts = torch.zeros(2 * len(self.cuts) + 1, dtype=torch.long, device=same.device)
        self.lowest = float("inf")

    def update(self, different: Shaped[Tensor, "n"]) -> None:
        """Count the scores of further different pairs; raises ``ValueError`` if one is not finite."""
        scores = _check("different", different).to(self.cuts.device)
        if not len(scores):
            return
        self.lowest = min(self.lowest, scores.min().item())
        below = scores < self.cuts[0]  # usually most of the pairs, and cheap to count
        self.counts[0] += below.sum()
        scores = scores[~below]
        place = torch.searchsorted(self.cuts, scores) + torch.searchsorted(self.cuts, scores, right=True)
        self.counts += torch.bincount(place, minlength=len(self.counts))

    def merge(self, other: "StreamedRoc") -> None:
        """Add the counts of another stream with the same matching pairs, of another process or shard."""
        if not torch.equal(self.cuts, other.cuts.to(self.cuts.device)):
            raise ValueError("other must count against the same scores")
        self.counts += other.counts.to(self.counts.device)
        self.lowest = min(self.lowest, other.lowest)

    def roc(self) -> Roc:
        """Return the curve of all pairs counted so far; raises ``ValueError`` if no different pair was."""
        if not self.counts.any():
            raise ValueError("no different pairs were added: update must be called before roc")
        descending = self.cuts.flip(0)
        # Two points a cut: just above it, and on it. The last point accepts everything.
        above = torch.nextafter(descending, torch.full_like(descending, torch.inf))
        last = descending.new_tensor([min(self.lowest, self.cuts[0].item())])
        thresholds = torch.cat(
            [descending.new_tensor([torch.inf]), torch.stack([above, descending], 1).flatten(), last]
        )
        same = self.same.flip(0).cumsum(0)
        before = torch.cat([same.new_zeros(1), same[:-1]])
        accepted_same = torch.cat([same.new_zeros(1), torch.stack([before, same], 1).flatten(), same[-1:]])
        accepted_different = torch.cat([same.new_zeros(1), self.counts.flip(0).cumsum(0)])
        return Roc(thresholds, accepted_same, accepted_different)


def _check(name: str, scores: Tensor) -> Float[Tensor, "n"]:
    """Return scores in float64 with −0 as 0, like :func:`check_pairs`."""
    if scores.ndim != 1 or scores.dtype == torch.bool or scores.is_complex():
        raise ValueError(f"{name} must be real scores of shape (n,), got {scores.dtype} {tuple(scores.shape)}")
    if not scores.isfinite().all():
        raise ValueError(f"{name} must be finite, got {int((~scores.isfinite()).sum())} that are not")
    return scores.detach().double() + 0.0
