"""The exact ROC of any number of different pairs in bounded memory."""

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from .roc import Roc

BINS_PER_CUT = 8  # more bins, fewer scores that have to be searched for
MAX_BINS = 2**21  # 16 MiB of counts


class StreamedRoc:
    """Count different pairs chunk by chunk against the scores of the same pairs, and give the exact ROC.

    Same pairs are few (mates), different pairs are many (every probe against a million distractors). The curve has a
    corner only where a same pair lies, so it is enough to count, between every two neighboring scores of same pairs,
    how many different pairs fall there: memory grows with the same pairs alone, and nothing is rounded.
    Every figure of the :class:`Roc` (AUC, EER, TAR at any FAR) equals that of keeping all scores.

    A binary search for every score would take most of the time. Scores are therefore counted in bins of equal width; the place
    of a bin without a score of a same pair is known, and only scores in the other bins are searched for.

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
        self.cuts = (cuts + 0.0).unique()  # ascending; minus zero is zero
        self.same = torch.bincount(torch.searchsorted(self.cuts, same), minlength=len(self.cuts))
        self.lowest = float("inf")
        # Place 2i is between cut i − 1 and cut i, place 2i + 1 on cut i.
        self._searched = torch.zeros(2 * len(self.cuts) + 1, dtype=torch.long, device=same.device)
        size = min(BINS_PER_CUT * len(self.cuts), MAX_BINS)
        spread = min(max(float(self.cuts[-1] - self.cuts[0]), 1e-300), 1e300)
        self._scale = (size - 3) / spread
        self._binned = torch.zeros(size, dtype=torch.long, device=same.device)
        inside = torch.bincount(self._bin(self.cuts), minlength=size)
        self._holds_cut, self._place = inside > 0, 2 * inside.cumsum(0)

    @property
    def counts(self) -> Int[Tensor, "places"]:
        """The number of different pairs below the lowest score of a same pair, on it, and so on to above the highest."""
        return self._searched.index_add(0, self._place, self._binned.masked_fill(self._holds_cut, 0))

    def update(self, different: Shaped[Tensor, "n"]) -> None:
        """Count the scores of further different pairs; raises ``ValueError`` if one is not finite."""
        scores = _check("different", different).to(self.cuts.device)
        if not len(scores):
            return
        self.lowest = min(self.lowest, scores.min().item() + 0.0)
        bins = self._bin(scores)
        self._binned += torch.bincount(bins, minlength=len(self._binned))
        scores = scores[self._holds_cut.index_select(0, bins).nonzero().squeeze(1)]
        before = torch.searchsorted(self.cuts, scores)
        equal = self.cuts[before.clamp_max(len(self.cuts) - 1)] == scores
        self._searched += torch.bincount(2 * before + equal, minlength=len(self._searched))

    def merge(self, other: "StreamedRoc") -> None:
        """Add the counts of another stream with the same matching pairs, of another process or shard."""
        if not torch.equal(self.cuts, other.cuts.to(self.cuts.device)):
            raise ValueError("other must count against the same scores")
        self._searched += other.counts.to(self.cuts.device)
        self.lowest = min(self.lowest, other.lowest)

    def _bin(self, scores: Float[Tensor, "n"]) -> Int[Tensor, "n"]:
        """Return the bin of each score, which never falls as the score rises. The first and the last are for scores beyond all cuts."""
        return (scores - self.cuts[0]).mul_(self._scale).clamp_(-1, len(self._binned) - 2).add_(1).int()

    def roc(self) -> Roc:
        """Return the curve of all pairs counted so far; raises ``ValueError`` if no different pair was."""
        counts = self.counts
        if not counts.any():
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
        accepted_different = torch.cat([same.new_zeros(1), counts.flip(0).cumsum(0)])
        return Roc(thresholds, accepted_same, accepted_different)


def _check(name: str, scores: Tensor) -> Float[Tensor, "n"]:
    """Return scores in float64."""
    if scores.ndim != 1 or scores.dtype == torch.bool or scores.is_complex():
        raise ValueError(f"{name} must be real scores of shape (n,), got {scores.dtype} {tuple(scores.shape)}")
    if len(scores) and not torch.stack(scores.aminmax()).isfinite().all():  # one pass; NaN is the least and the largest
        raise ValueError(f"{name} must be finite, got {int((~scores.isfinite()).sum())} that are not")
    return scores.detach().double()
