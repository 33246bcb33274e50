"""Calibrated thresholds of galleries, and the warning that a gallery has become too large for its threshold."""

import json
import math
from typing import Literal, NamedTuple

Rate = Literal["far", "fpir"]
MAX_EXPECTED_FALSE_ACCEPTS = 0.1  # per stranger; a higher number gives a warning


class Calibration(NamedTuple):
    """A threshold, the error rate that it was chosen for, and the number of identities at that time.

    Attributes:
        threshold: The lowest score to accept.
        by: The calibrated rate: ``"far"``, the share of accepted pairs of different people; or ``"fpir"``, the share of
            strangers that a gallery of ``size`` identities accepts.
        rate: The requested rate.
        size: The number of enrolled identities when it was calibrated.
        measured: The share of the given impostors that the threshold accepts.
        interval: The 95 % interval of that share: over people for ``"fpir"``, over pairs for ``"far"``.
        people: The number of strangers in the measurement, for ``"fpir"``.
        slope: With ``offset``, the log-odds of a score: slope·score + offset. None if there were too few pictures of the
            same person to fit them.
        offset: See ``slope``.

    >>> Calibration(0.62, "fpir", 0.01, 50).warning(size=500) is None  # ten times as many identities as in the calibration
    False
    """

    threshold: float
    by: Rate
    rate: float
    size: int
    measured: float | None = None
    interval: tuple[float, float] | None = None
    people: int | None = None
    slope: float | None = None
    offset: float | None = None

    def probability(self, score: float) -> float | None:
        """Return the probability that a probe with this score is of the named person; None if it was not fitted.

        It holds if half of all probes are of enrolled people.

        >>> Calibration(0.5, "fpir", 0.01, 50, slope=20.0, offset=-10.0).probability(0.5)
        0.5
        """
        if self.slope is None or self.offset is None:
            return None
        return 1 / (1 + math.exp(min(-(self.slope * score + self.offset), 700.0)))

    def expected_fpir(self, size: int) -> float:
        """Estimate the share of strangers that a gallery of ``size`` identities accepts, for independent comparisons.

        A pairwise rate gives 1 − (1 − far)^size. A rate measured against a gallery grows with its size in the same way.

        >>> [round(Calibration(0.5, "far", 1e-3, 0).expected_fpir(size), 2) for size in (100, 1000)]
        [0.1, 0.63]
        """
        power = size if self.by == "far" else size / max(self.size, 1)
        return 1.0 if self.rate >= 1 else -math.expm1(power * math.log1p(-self.rate))

    def warning(self, size: int) -> str | None:
        """Return a warning if a gallery of ``size`` identities cannot expect the calibrated rate, otherwise None."""
        expected = self.expected_fpir(size)
        if self.by == "far" and size * self.rate >= MAX_EXPECTED_FALSE_ACCEPTS * (1 - 1e-9):
            return (
                f"with a false accept rate of {self.rate:g} per comparison, a gallery of {size} identities accepts about "
                f"{expected:.0%} of strangers: calibrate for identification, with fpir and strangers"
            )
        if self.by == "fpir" and size > 2 * self.size:
            return (
                f"the threshold was calibrated for {self.size} identities, there are {size} now, and about {expected:.0%} "
                f"of strangers instead of {self.rate:.0%} may be accepted: calibrate again"
            )
        return None

    def to_text(self) -> str:
        """Return the calibration as JSON, with exact numbers."""
        return json.dumps(self._asdict())

    @classmethod
    def from_text(cls, text: str) -> "Calibration":
        """Read a calibration written by :meth:`to_text`."""
        values = json.loads(text)
        interval = values.pop("interval", None)
        return cls(**values, interval=None if interval is None else (float(interval[0]), float(interval[1])))
