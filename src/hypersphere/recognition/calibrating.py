"""Thresholds of galleries: set by pairs or by strangers, remembered with what they promise, doubted when it no longer holds."""

import json
import math
from typing import Literal, NamedTuple

from jaxtyping import Float
from torch import Tensor

LARGE = 0.1  # expected false accepts of one stranger from which on a pairwise rate is called too high


class Calibration(NamedTuple):
    """A threshold, the ``rate`` of the kind ``by`` that it keeps, and how many identities the gallery had then.

    >>> Calibration(0.62, "fpir", 0.01, 50).warning(size=500) is None  # ten times as many identities as it was set with
    False
    """

    threshold: float
    by: Literal["far", "fpir"]
    rate: float
    size: int

    def expected_fpir(self, size: int) -> float:
        """Return the share of strangers that a gallery of ``size`` identities accepts, comparisons taken for independent.

        A pairwise rate gives 1 − (1 − far)^size; one measured against a gallery grows with it in the same way.

        >>> [round(Calibration(0.5, "far", 1e-3, 0).expected_fpir(size), 2) for size in (100, 1000)]
        [0.1, 0.63]
        """
        power = size if self.by == "far" else size / max(self.size, 1)
        return 1.0 if self.rate >= 1 else -math.expm1(power * math.log1p(-self.rate))

    def warning(self, size: int) -> str | None:
        """Return what a gallery of ``size`` identities should be told before it identifies by this threshold, if anything."""
        expected = self.expected_fpir(size)
        if self.by == "far" and size * self.rate >= LARGE * (1 - 1e-9):
            return (
                f"a false accept rate of {self.rate:g} for one comparison lets about {expected:.0%} of strangers into a "
                f"gallery of {size} identities: calibrate for identification, by fpir and strangers"
            )
        if self.by == "fpir" and size > 2 * self.size:
            return (
                f"the threshold was calibrated for {self.size} identities, there are {size} now, and about {expected:.0%} "
                f"of strangers instead of {self.rate:.0%} may be accepted: calibrate again"
            )
        return None

    def to_text(self) -> str:
        """Return the calibration as JSON, its numbers exact."""
        return json.dumps(self._asdict())

    @classmethod
    def from_text(cls, text: str | None) -> "Calibration | None":
        """Return what :meth:`to_text` wrote, None of None."""
        return None if text is None else cls(**json.loads(text))


def threshold_at_fpir(best: Float[Tensor, "n"], fpir: float) -> float:
    """Return the lowest threshold that at most ``fpir`` of strangers reach with their best scores ``(n,)``.

    Raises:
        ValueError: When there are fewer than 1/fpir strangers: a threshold above all of them would promise what was
            not measured.

    >>> threshold_at_fpir(torch.tensor([0.1, 0.5, 0.2, 0.3], dtype=torch.double), fpir=0.25) > 0.3
    True
    """
    if not 0 < fpir < 1:
        raise ValueError(f"fpir must be between 0 and 1, got {fpir!r}")
    allowed = math.floor(fpir * len(best) + 1e-9)
    if not allowed:
        raise ValueError(
            f"fpir={fpir:g} needs at least {math.ceil(1 / fpir - 1e-9)} strangers to be resolved, got {len(best)}"
        )
    ordered = best.double().sort(descending=True).values
    return math.nextafter(ordered[allowed].item(), math.inf)
