"""The parts of a claim: published values, arms that test it, and checks that decide the verdict."""

import fnmatch
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from .arms import Arm, Row, compare_settings
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
    """The values of one table of Liu (2020) that the claim uses.

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
    """A comparison: ``arm`` has a larger ``metric`` than ``than``, which is another arm or a number.

    The check holds if the 95 % interval of the paired differences (:class:`Effect`) is on the claimed side of 0, and is reversed if
    it is on the other side. Otherwise the effect is smaller than published if the interval does not reach the published difference,
    and undecided if it does.

    Args:
        name: the title of the check in reports.
        metric: the compared metric.
        arm: the arm that is claimed to be better.
        than: the other arm, or a number.
        larger: False if a smaller metric is better.
        no_worse: the check also holds if the interval contains 0.
        published: the values that Liu (2020) prints for ``arm`` and for ``than``.

    >>> check = Check("margin above softmax", "accuracy", arm="margin", than="softmax")
    >>> ours, other = {0: 93.0, 1: 95.0, 2: 94.0}, {0: 91.0, 1: 93.1, 2: 91.9}
    >>> check.decide_outcome({"margin": {"accuracy": ours}, "softmax": {"accuracy": other}})
    'holds'
    >>> check.decide_outcome({"margin": {"accuracy": other}, "softmax": {"accuracy": ours}})
    'reversed'
    """

    name: str
    metric: str
    arm: str
    than: str | float
    larger: bool = True
    no_worse: bool = False
    published: tuple[float, float] | None = None

    def compute_effect(self, measured: Measured) -> Effect | None:
        """Return the difference of ``arm`` and ``than``; None if one of them has fewer than two seeds."""
        ours = measured.get(self.arm, {}).get(self.metric, {})
        other = self.than if isinstance(self.than, float) else measured.get(self.than, {}).get(self.metric, {})
        return Effect.between(ours, other)

    def decide_outcome(self, measured: Measured) -> Outcome:
        """Decide the check from the values ``measured[arm][metric][seed]``; at least two seeds are needed."""
        effect = self.compute_effect(measured)
        if effect is None:
            return "not measured"
        gain = effect.mean * (1 if self.larger else -1)
        if gain - effect.paired > 0:
            return "holds"
        if gain + effect.paired < 0:
            return "reversed"
        if self.no_worse:
            return "holds"
        gap = self.published_gap
        return "smaller than published" if gap is not None and gain + effect.paired < gap else "undecided"

    @property
    def published_gap(self) -> float | None:
        """The size of the published difference, in the unit of the metric."""
        return None if self.published is None else abs(self.published[0] - self.published[1])

    def count_required_seeds(self, measured: Measured) -> int | None:
        """Return the number of seeds with which the interval would be narrower than the published difference.

        If nothing is published, the measured difference is used instead. None means more than ``MAX_SEEDS`` of
        :mod:`studies.liu2020.effects`, or no effect.
        """
        effect = self.compute_effect(measured)
        if effect is None:
            return None
        size = self.published_gap if self.published_gap is not None else abs(effect.mean)
        return effect.count_required_seeds(size) if size > 0 else None

    @property
    def published_change(self) -> float | None:
        """The published difference in percent of the value of ``than``."""
        if self.published is None:
            return None
        ours, other = self.published
        return 100 * (ours - other) / abs(other)


def decide_verdict(outcomes: Sequence[Outcome]) -> Verdict:
    """Return the verdict of a claim from the outcomes of its checks.

    The claim holds if all checks hold. It does not hold if none holds, or if more are reversed than hold. Otherwise it holds in
    part. "So far" is added if some checks are not measured yet.

    >>> decide_verdict(["holds", "undecided"]), decide_verdict(["reversed", "undecided"]), decide_verdict(["holds", "not measured"])
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

    ``arms(size)`` returns the compared arms by name. Arms named ``group/arm`` form one table per group. The size ``paper`` is the setting
    of Liu (2020), ``laptop`` the recorded one; the claim's text lists their differences. ``metrics`` are the columns of the tables.

    >>> from studies.liu2020 import get_claim
    >>> claim = get_claim("theory")
    >>> claim.checks[0].name, len(claim.get_arms("laptop")), claim.find_unfair_settings()
    ('lemma 1: condition grows at least as c²', 28, {})
    """

    id: str
    title: str
    text: ClaimText
    published: tuple[Published, ...]
    arms: Callable[[Size], Mapping[str, Arm]]
    about: tuple[str, ...]
    """Patterns of the settings that the claim is about. Compared arms may differ in these only."""
    metrics: Mapping[str, str]
    checks: tuple[Check, ...]
    picture: Callable[[Sequence[Row]], Any]
    """Draws a figure from rows."""
    caption: str
    seeds: int = 3
    fewer: Mapping[str, int] = field(default_factory=dict)
    """Patterns of arms that have fewer seeds, with their number."""
    tuning: Tuning | None = field(default=None)

    def get_arms(self, size: Size) -> dict[str, Arm]:
        """Return the arms of a size."""
        if size not in SIZES:
            raise ValueError(f"size must be one of {', '.join(SIZES)}, got {size!r}")
        return dict(self.arms(size))

    def count_seeds(self, arm: str) -> int:
        """Return the number of seeds of an arm.

        >>> from studies.liu2020 import get_claim
        >>> get_claim("theory").count_seeds("rotation/cayley")
        5
        """
        return min([self.seeds, *(count for pattern, count in self.fewer.items() if fnmatch.fnmatch(arm, pattern))])

    def compare_arms(self, size: Size = "laptop") -> dict[tuple[str, str], dict[str, tuple[Any, Any]]]:
        """Return the differing settings of each pair of arms that a check compares."""
        arms = self.get_arms(size)
        pairs = dict.fromkeys((c.arm, c.than) for c in self.checks if isinstance(c.than, str) and c.arm != c.than)
        return {(a, b): compare_settings(arms[a], arms[b]) for a, b in pairs}

    def find_unfair_settings(self, size: Size = "laptop") -> dict[tuple[str, str], list[str]]:
        """Return the settings in which compared arms differ although the claim is not about them; there should be none."""
        found = {
            pair: [key for key in keys if not any(fnmatch.fnmatch(key, pattern) for pattern in self.about)]
            for pair, keys in self.compare_arms(size).items()
        }
        return {pair: keys for pair, keys in found.items() if keys}
