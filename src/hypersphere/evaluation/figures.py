"""Evaluation reports: figures with unit, interval and count, as a table, JSON or a plot."""

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .intervals import Measurement

Number = float | int | str
NEGLIGIBLE = 1e-9  # numbers below this share of the largest number of a figure are rounding errors


@dataclass(frozen=True)
class Figure:
    """A number of a report with unit, interval and number of trials.

    Attributes:
        name: Measure with its condition, for example ``"TAR@FAR=1e-3"``.
        value: The number, or a text if the figure is a setting or a finding.
        unit: ``"fraction"`` (tables show percent), ``"degrees"``, ``"cosine"``, ``"pairs"``, …; empty for texts and for
            numbers without a unit.
        low: Lower end of the 95 % interval; None without an interval.
        high: Upper end of the 95 % interval.
        count: Number of trials (pairs, probes, episodes); None if the value is a count.
        over: Unit that the interval varies, ``"identities"`` or ``"independent trials"``; None without an interval.

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
        """Return a figure with the interval of ``measured``, if it is a :class:`Measurement`.

        >>> Figure.of("rank-1", Measurement(0.5, 0.4, 0.6), count=99).cells()
        ('rank-1', '50 %', '[40, 60] %', 'n=99')
        """
        if isinstance(measured, Measurement):
            low, high = measured.interval
            if unit == "fraction":  # the normal interval of a mean may exceed 0 and 1
                low, high = max(low, 0.0), min(high, 1.0)
            return cls(name, float(measured), unit, low, high, count, measured.over)
        return cls(name, float(measured), unit, count=count)

    def cells(self) -> tuple[str, str, str, str]:
        """Return name, value with unit, interval and count as texts for a table.

        >>> Figure("threshold", 35.5, "degrees").cells()
        ('threshold', '35.5 degrees', '', '')
        >>> Figure("EER", 0.02, "fraction", 1.4e-17, 0.05).cells()[2]  # rounding errors are zero
        '[0, 5] %'
        """
        scale, unit = (100.0, "%") if self.unit == "fraction" else (1.0, self.unit)
        numbers = [abs(number) for number in (self.value, self.low, self.high) if isinstance(number, float | int)]
        tiny = NEGLIGIBLE * max((number for number in numbers if math.isfinite(number)), default=0.0)
        low, high = (None if end is None else _format(end, scale, tiny) for end in (self.low, self.high))
        bounds = "" if low is None else f"[{low}, {high}] {unit}".rstrip()
        count = "" if self.count is None else f"n={self.count}"
        return self.name, f"{_format(self.value, scale, tiny)} {unit}".rstrip(), bounds, count

    def entry(self) -> dict[str, Any]:
        """Return value, unit, interval, unit of the interval, and count for JSON. Non-finite numbers become None.

        >>> Figure("EER", 0.25, "fraction", 0.125, 0.5, 80, "identities").entry()
        {'value': 0.25, 'unit': 'fraction', 'interval': [0.125, 0.5], 'interval over': 'identities', 'count': 80}
        """
        interval = None if self.low is None else [_replace_nonfinite(self.low), _replace_nonfinite(self.high)]
        entry = {
            "value": _replace_nonfinite(self.value),
            "unit": self.unit,
            "interval": interval,
            "interval over": self.over,
        }
        return {**entry, "count": self.count}

    @classmethod
    def from_entry(cls, name: str, entry: Mapping[str, Any]) -> "Figure":
        """Return the figure of an :meth:`entry`.

        >>> figure = Figure("EER", 0.25, "fraction", 0.125, 0.5, 80, "identities")
        >>> Figure.from_entry("EER", figure.entry()) == figure
        True
        """
        value, interval = entry["value"], entry.get("interval")
        low, high = (None, None) if interval is None else (math.nan if end is None else end for end in interval)
        known = math.nan if value is None else value
        return cls(name, known, entry.get("unit", ""), low, high, entry.get("count"), entry.get("interval over"))


class Report(ABC):
    """Base class of evaluation reports: ``print(report)`` prints a table, :meth:`json` returns JSON, :meth:`plot` draws.

    A subclass defines ``title``, :meth:`figures` and :meth:`plot`.

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
        """Return the figures of the report in the order of the table, with unique names."""

    @abstractmethod
    def plot(self, ax: Any = None) -> tuple[Any, Any]:
        """Draw the report on ``ax``, or on a new figure, and return ``(fig, ax)``; needs matplotlib."""

    def numbers(self) -> dict[str, Number]:
        """Return the values of :meth:`figures` by name, without unit and interval."""
        return {figure.name: figure.value for figure in self.figures()}

    def json(self) -> str:
        """Return every figure with value, unit, 95 % interval and count as a JSON string.

        Non-finite numbers are ``null``, so that every JSON parser can read the string.
        """
        content = {"report": self.title, "figures": {figure.name: figure.entry() for figure in self.figures()}}
        return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)

    def __str__(self) -> str:
        return format_table(self.title, self.figures())

    __repr__ = __str__


def format_table(title: str, figures: list[Figure]) -> str:
    """Return a title and aligned columns of names, values with units, intervals, and counts.

    >>> print(format_table("verification", [Figure("same", 30, "pairs"), Figure("EER", 0.0125, "fraction", 0.01, 0.02, 60)]))
    verification
      same  30 pairs
      EER     1.25 %  [1, 2] %  n=60
    """
    rows = [figure.cells() for figure in figures]
    widths = [max((len(row[i]) for row in rows), default=0) for i in range(4)]
    lines = (f"  {a:<{widths[0]}}  {b:>{widths[1]}}  {c:<{widths[2]}}  {d}".rstrip() for a, b, c, d in rows)
    return "\n".join([title, *lines])


def describe_intervals(figures: list[Figure]) -> str:
    """Return a sentence that says what the intervals of figures are over; empty without intervals.

    >>> describe_intervals([Figure("rank-1", 0.5, "fraction", 0.2, 0.8, 10, "identities"), Figure("images", 20)])
    'intervals: 95 %, over identities'
    """
    names: dict[str, list[str]] = {}
    for figure in figures:
        if figure.over is not None:
            names.setdefault(figure.over, []).append(figure.name)
    units = sorted(names, key=lambda over: -len(names[over]))
    exceptions = [f"those of {', '.join(names[over])} over {over}" for over in units[1:]]
    return "; ".join([f"intervals: 95 %, over {units[0]}", *exceptions]) if units else ""


def format_rate(rate: float) -> str:
    """Return a rate as it is written in names of figures.

    >>> format_rate(0.001), format_rate(0.005), format_rate(0.1)
    ('1e-3', '5e-3', '1e-1')
    """
    mantissa, exponent = f"{rate:e}".split("e")
    return f"{float(mantissa):g}e{int(exponent)}"


def _format(value: Number, scale: float, tiny: float) -> str:
    """Return a number with four significant digits; zero if its absolute value is at most ``tiny``."""
    if not isinstance(value, float):
        return str(value)
    return "0" if abs(value) <= tiny else f"{scale * value:.4g}"


def _replace_nonfinite(value: Number | None) -> Number | None:
    return None if isinstance(value, float) and not math.isfinite(value) else value
