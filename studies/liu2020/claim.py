"""The parts of a claim: published values, arms that test it, and checks that decide the verdict."""

import fnmatch
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from .arms import Arm, Row, differing
from .effects import Effect, Values
from .tuning import Tuning

Size = Literal["laptop", "paper"]
SIZES: tuple[Size, ...] = get_args(Size)
Outcome = Literal["holds", "undecided", "smaller than published", "reversed", "not measured"]
Verdict = Literal[
    "holds",
    "holds in part",
    "does not hold here",
    "holds so far",
    "holds in part so far",
    "does not hold here so far",
    "not measured",
]
Measured = Mapping[str, Mapping[str, Values]]
"""``measured[arm][metric][seed]``"""


@dataclass(frozen=True)
class Published:
    """One table of Liu (2020), as far as the claim needs it.

    >>> from studies.liu2020 import get_claim
    >>> table = get_claim("imbalance").published[0]
    >>> table.table, table.what, table.values
    ('figure 5.4', 'accuracy (%) on MNIST with 100 zeros', {'baseline': 88.5, 'MHE': 98.0})
    """

    table: str
    what: str
    values: Mapping[str, float | str]


@dataclass(frozen=True)
class ClaimText:
    """The prose of a claim, kept in ``text/<id>.md``.

    Attributes:
        statement: what Liu (2020) claims.
        conclusion: what the recorded rows show.
        differences: how the recorded setting differs from that of Liu (2020).
    """

    statement: str
    conclusion: str
    differences: tuple[str, ...]


def read_text(id: str, folder: pathlib.Path = pathlib.Path(__file__).parent / "text") -> ClaimText:
    """Read the prose of a claim: the sections "Claim", "Conclusion" and "Differences of setting".

    >>> read_text("mhe").differences[0][:26]
    'Tiny-ImageNet (20 classes)'
    """
    text = (folder / f"{id}.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    statement, conclusion = (" ".join(sections[title].split()) for title in ("Claim", "Conclusion"))
    items = sections["Differences of setting"].strip().removeprefix("- ").split("\n- ")
    return ClaimText(statement, conclusion, tuple(" ".join(item.split()) for item in items))


@dataclass(frozen=True)
class Check:
    """``arm`` has a larger (or smaller) ``metric`` than ``than``, another arm or a number.

    It holds when the 95 % interval of the paired differences (:class:`Effect`) lies on the claimed side of 0, is reversed when
    it lies on the other. Otherwise the effect is smaller than published if the interval does not reach the published difference,
    and undecided if it does. With ``no_worse`` an interval that contains 0 is enough to hold.
    ``published`` are the two values that Liu (2020) prints for the same comparison, ``arm`` first.

    >>> check = Check("margin above softmax", "accuracy", arm="margin", than="softmax")
    >>> ours, other = {0: 93.0, 1: 95.0, 2: 94.0}, {0: 91.0, 1: 93.1, 2: 91.9}
    >>> check.outcome({"margin": {"accuracy": ours}, "softmax": {"accuracy": other}})
    'holds'
    >>> check.outcome({"margin": {"accuracy": other}, "softmax": {"accuracy": ours}})
    'reversed'
    """

    name: str
    metric: str
    arm: str
    than: str | float
    larger: bool = True
    no_worse: bool = False
    published: tuple[float, float] | None = None

    def effect(self, measured: Measured) -> Effect | None:
        """Ours minus the other; None where something is missing or only one seed is there."""
        ours = measured.get(self.arm, {}).get(self.metric, {})
        other = self.than if isinstance(self.than, float) else measured.get(self.than, {}).get(self.metric, {})
        return Effect.between(ours, other)

    def outcome(self, measured: Measured) -> Outcome:
        """By the values ``measured[arm][metric][seed]``; a single seed measures nothing."""
        effect = self.effect(measured)
        if effect is None:
            return "not measured"
        gain = effect.mean * (1 if self.larger else -1)
        if gain - effect.paired > 0:
            return "holds"
        if gain + effect.paired < 0:
            return "reversed"
        if self.no_worse:
            return "holds"
        wanted = self.published_gap
        return "smaller than published" if wanted is not None and gain + effect.paired < wanted else "undecided"

    @property
    def published_gap(self) -> float | None:
        """The size of the published difference, in the unit of the metric."""
        return None if self.published is None else abs(self.published[0] - self.published[1])

    def required_seeds(self, measured: Measured) -> int | None:
        """Return how many seeds would decide the check: an interval narrower than the published difference.

        Where nothing is published, it is the measured difference that the interval must be narrower than. None stands for more
        than ``MAX_SEEDS`` of :mod:`studies.liu2020.effects`, or for no effect at all.
        """
        effect = self.effect(measured)
        if effect is None:
            return None
        size = self.published_gap if self.published_gap is not None else abs(effect.mean)
        return effect.required_seeds(size) if size > 0 else None

    @property
    def expected(self) -> float | None:
        """The published difference in percent of the other's value."""
        if self.published is None:
            return None
        ours, other = self.published
        return 100 * (ours - other) / abs(other)


def verdict(outcomes: Sequence[Outcome]) -> Verdict:
    """One rule for all claims: all checks hold; or none does, or fewer than are reversed; or something in between.

    With checks that are not measured yet it says so.

    >>> verdict(["holds", "undecided"]), verdict(["reversed", "undecided"]), verdict(["holds", "not measured"])
    ('holds in part', 'does not hold here', 'holds so far')
    """
    measured = [outcome for outcome in outcomes if outcome != "not measured"]
    if not measured:
        return "not measured"
    good, bad = measured.count("holds"), measured.count("reversed")
    whole = len(measured) == len(outcomes)
    if good == len(measured):
        return "holds" if whole else "holds so far"
    if good == 0 or bad > good:
        return "does not hold here" if whole else "does not hold here so far"
    return "holds in part" if whole else "holds in part so far"


@dataclass(frozen=True, eq=False)
class Claim:
    """A claim of Liu (2020) and the experiment that tests it.

    ``arms(size)`` are compared, by name; a name ``group/arm`` puts it into a table of its own. ``paper`` is the text's setting,
    ``laptop`` the one recorded here, whose ``differences`` are spelled out. ``metrics`` are the columns of the table.

    >>> from studies.liu2020 import get_claim
    >>> claim = get_claim("theory")
    >>> claim.checks[0].name, len(claim.sized("laptop")), claim.unfair()
    ('lemma 1: condition grows at least as c²', 28, {})
    """

    id: str
    title: str
    text: ClaimText
    published: tuple[Published, ...]
    arms: Callable[[Size], Mapping[str, Arm]]
    about: tuple[str, ...]
    """patterns of the settings in which compared arms may differ: what the claim is about"""
    metrics: Mapping[str, str]
    checks: tuple[Check, ...]
    picture: Callable[[Sequence[Row]], Any]
    """rows → a figure"""
    caption: str
    seeds: int = 3
    fewer: Mapping[str, int] = field(default_factory=dict)
    """patterns of arms of which there are fewer seeds, and how many"""
    tuning: Tuning | None = field(default=None)

    def sized(self, size: Size) -> dict[str, Arm]:
        """The arms at a size, which must be one there is."""
        if size not in SIZES:
            raise ValueError(f"size must be one of {', '.join(SIZES)}, got {size!r}")
        return dict(self.arms(size))

    def seeds_of(self, arm: str) -> int:
        """How many runs an arm has.

        >>> from studies.liu2020 import get_claim
        >>> get_claim("theory").seeds_of("rotation/cayley")
        5
        """
        return min([self.seeds, *(count for pattern, count in self.fewer.items() if fnmatch.fnmatch(arm, pattern))])

    def compared(self, size: Size = "laptop") -> dict[tuple[str, str], dict[str, tuple[Any, Any]]]:
        """For each two arms that a check compares, the settings in which they differ."""
        arms = self.sized(size)
        pairs = dict.fromkeys((c.arm, c.than) for c in self.checks if isinstance(c.than, str) and c.arm != c.than)
        return {(a, b): differing(arms[a], arms[b]) for a, b in pairs}

    def unfair(self, size: Size = "laptop") -> dict[tuple[str, str], list[str]]:
        """Settings in which compared arms differ though the claim is not about them: there must be none."""
        found = {
            pair: [key for key in keys if not any(fnmatch.fnmatch(key, pattern) for pattern in self.about)]
            for pair, keys in self.compared(size).items()
        }
        return {pair: keys for pair, keys in found.items() if keys}
