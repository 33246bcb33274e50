"""What every evaluation returns: figures with unit, interval and count; a table, JSON and a picture of them."""

import json
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from .intervals import Measurement

Number = float | int | str


@dataclass(frozen=True)
class Figure:
    """One number of a report, with what is needed to read it.

    Attributes:
        name: What was measured, with its condition: ``"TAR@FAR=1e-3"``.
        value: The number, or a text where the figure is a setting or a finding.
        unit: ``"fraction"`` (of 1; tables show percent), ``"degrees"``, ``"cosine"``, ``"pairs"``, …; empty for a text
            and for a number without unit.
        low: Lower end of the 95 % interval; None where no interval is known.
        high: Upper end of the 95 % interval.
        count: How many trials (pairs, probes, episodes) the value is over; None where it is a count itself.
        over: What the interval is over, ``"identities"`` or ``"independent trials"``; None without an interval.

    >>> Figure("rank-1", 0.5, "fraction", 0.237, 0.763, 10, "identities").cells()
    ('rank-1', '50 %', '[23.7, 76.3] %', 'n=10')
    """

    name: str
    value: Number
    unit: str = ""
    low: float | None = None
    high: float | None = None
    count: int | None = None
    over: str | None = None

    @classmethod
    def of(cls, name: str, measured: float, unit: str = "fraction", count: int | None = None) -> "Figure":
        """Return the figure of a number, with its interval if it is a :class:`Measurement` that knows one.

        >>> Figure.of("rank-1", Measurement(0.5, 0.4, 0.6), count=99).cells()
        ('rank-1', '50 %', '[40, 60] %', 'n=99')
        """
        if isinstance(measured, Measurement):
            low, high = measured.interval
            if unit == "fraction":  # the normal interval of a mean does not know that a share ends at 0 and 1
                low, high = max(low, 0.0), min(high, 1.0)
            return cls(name, float(measured), unit, low, high, count, measured.over)
        return cls(name, float(measured), unit, count=count)

    def cells(self) -> tuple[str, str, str, str]:
        """Return name, value with its unit, interval and count as the table writes them.

        >>> Figure("threshold", 35.5, "degrees").cells()
        ('threshold', '35.5 degrees', '', '')
        """
        scale, unit = (100.0, "%") if self.unit == "fraction" else (1.0, self.unit)
        bounds = "" if self.low is None else f"[{_shown(self.low, scale)}, {_shown(self.high, scale)}] {unit}".rstrip()
        count = "" if self.count is None else f"n={self.count}"
        return self.name, f"{_shown(self.value, scale)} {unit}".rstrip(), bounds, count

    def entry(self) -> dict[str, Any]:
        """Return value, unit, interval, what the interval is over, and count; what is not a finite number becomes None.

        >>> Figure("EER", 0.25, "fraction", 0.125, 0.5, 80, "identities").entry()
        {'value': 0.25, 'unit': 'fraction', 'interval': [0.125, 0.5], 'interval over': 'identities', 'count': 80}
        """
        interval = None if self.low is None else [_finite(self.low), _finite(self.high)]
        entry = {"value": _finite(self.value), "unit": self.unit, "interval": interval, "interval over": self.over}
        return {**entry, "count": self.count}


class Report(ABC):
    """Figures of one evaluation: ``print(report)`` is a table, :meth:`json` a string, :meth:`plot` a picture.

    A new report says its ``title``, its :meth:`figures` and how it is drawn.

    >>> class Speed(Report):
    ...     title = "speed"
    ...     def figures(self):
    ...         return [Figure("images", 250.0, "per second")]
    ...     def plot(self, ax=None):
    ...         return hs.plots.plot_bars(self.numbers(), title=self.title, ax=ax)
    >>> print(Speed())
    speed
      images  250 per second
    """

    title: str = "evaluation"

    @abstractmethod
    def figures(self) -> list[Figure]:
        """Return the figures of the report in the order of the table; no two share a name."""

    @abstractmethod
    def plot(self, ax: Any = None) -> tuple[Any, Any]:
        """Draw the report on ``ax``, or on a new figure, and return ``(fig, ax)``; needs matplotlib."""

    def numbers(self) -> dict[str, Number]:
        """Return the values of :meth:`figures` by name, without unit and interval."""
        return {figure.name: figure.value for figure in self.figures()}

    def json(self) -> str:
        """Return every figure with value, unit, 95 % interval and count as a JSON string.

        What is not a finite number is ``null``, so that every parser reads it.
        """
        content = {"report": self.title, "figures": {figure.name: figure.entry() for figure in self.figures()}}
        return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)

    def __str__(self) -> str:
        return table(self.title, self.figures())

    __repr__ = __str__


def table(title: str, figures: list[Figure]) -> str:
    """Return aligned columns under a title: names, values with units, intervals, counts.

    >>> print(table("verification", [Figure("same", 30, "pairs"), Figure("EER", 0.0125, "fraction", 0.01, 0.02, 60)]))
    verification
      same  30 pairs
      EER     1.25 %  [1, 2] %  n=60
    """
    rows = [figure.cells() for figure in figures]
    widths = [max((len(row[i]) for row in rows), default=0) for i in range(4)]
    lines = (f"  {a:<{widths[0]}}  {b:>{widths[1]}}  {c:<{widths[2]}}  {d}".rstrip() for a, b, c, d in rows)
    return "\n".join([title, *lines])


def interval_note(figures: list[Figure]) -> str:
    """Return the sentence that says what the intervals of figures are over; empty where there are none.

    >>> interval_note([Figure("rank-1", 0.5, "fraction", 0.2, 0.8, 10, "identities"), Figure("images", 20)])
    'intervals: 95 %, over identities'
    """
    names: dict[str, list[str]] = {}
    for figure in figures:
        if figure.over is not None:
            names.setdefault(figure.over, []).append(figure.name)
    most = sorted(names, key=lambda over: -len(names[over]))
    others = [f"those of {', '.join(names[over])} over {over}" for over in most[1:]]
    return "; ".join([f"intervals: 95 %, over {most[0]}", *others]) if most else ""


def rate_name(rate: float) -> str:
    """Return a rate as names of figures write it.

    >>> rate_name(0.001), rate_name(0.005), rate_name(0.1)
    ('1e-3', '5e-3', '1e-1')
    """
    mantissa, exponent = f"{rate:e}".split("e")
    return f"{float(mantissa):g}e{int(exponent)}"


def _shown(value: Number | None, scale: float = 1.0) -> str:
    assert value is not None
    return f"{scale * value:.4g}" if isinstance(value, float) else str(value)


def _finite(value: Number | None) -> Number | None:
    return None if isinstance(value, float) and not math.isfinite(value) else value
