"""Which kind of rotation fine-tuning learns, with its options, and how it fits a layer."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias, get_args

import torch
from torch import Tensor

from .block_rotation import BlockRotation, PermutedRotation
from .butterfly_rotation import ButterflyRotation
from .reflection_rotation import ReflectionRotation
from .rotation import Rotation

TuningName: TypeAlias = Literal["oft", "coft", "boft", "hra", "poet"]
TUNING_NAMES: tuple[TuningName, ...] = get_args(TuningName)
# the options that a method has beside its block, with the values they get when none is given
_OPTIONS: dict[str, dict[str, Any]] = {
    "oft": {"terms": None},
    "coft": {"terms": None, "eps": 6e-5},  # the value of the authors' code
    "boft": {"terms": None, "factors": 2},
    "hra": {"rank": 8},  # the value of the authors
    "poet": {"terms": None},
}


@dataclass(frozen=True)
class TuningMethod:
    """A method of fine-tuning and its options; those that it does not have must stay None.

    Args:
        name: ``"oft"``, ``"coft"``, ``"boft"``, ``"hra"`` or ``"poet"``.
        block: the size of a block; a layer whose size it does not divide gets the largest divisor below it.
        terms: None for the exact Cayley transform, or an even number of terms of its Neumann series (not ``"hra"``).
        eps: the largest ‖R − I‖ of ``"coft"``, 6·10⁻⁵ by default.
        factors: how many butterfly factors ``"boft"`` has, 2 by default.
        rank: how many reflections ``"hra"`` has, even, 8 by default.

    >>> TuningMethod("hra").options()
    {'name': 'hra', 'block': 32, 'rank': 8}
    """

    name: TuningName = "oft"
    block: int = 32
    terms: int | None = None
    eps: float | None = None
    factors: int | None = None
    rank: int | None = None

    def __post_init__(self) -> None:
        if self.name not in TUNING_NAMES:
            raise ValueError(f"method must be one of {', '.join(TUNING_NAMES)}, got {self.name!r}")
        mine = _OPTIONS[self.name]
        for option in ("terms", "eps", "factors", "rank"):
            given = getattr(self, option)
            if option in mine:
                object.__setattr__(self, option, mine[option] if given is None else given)
            elif given is not None:
                raise ValueError(f"{option}={given!r} has no meaning for {self.name!r}, which takes {', '.join(mine)}")
        if self.block < 2:
            raise ValueError(f"block must be an integer ≥ 2, got {self.block!r}")
        if self.terms is not None and (self.terms < 2 or self.terms % 2):
            raise ValueError(f"terms must be an even integer ≥ 2, or None for the exact transform, got {self.terms!r}")
        if self.eps is not None and not self.eps > 0:
            raise ValueError(f"eps must be a number > 0, got {self.eps!r}")
        if self.factors is not None and self.factors < 1:
            raise ValueError(f"factors must be an integer ≥ 1, got {self.factors!r}")
        if self.rank is not None and (self.rank < 2 or self.rank % 2):
            raise ValueError(
                f"rank must be an even integer ≥ 2, so that R can start as the identity, got {self.rank!r}"
            )

    def options(self) -> dict[str, Any]:
        """The arguments that make an equal method, without those that it does not have."""
        return {key: value for key, value in asdict(self).items() if value is not None}

    def explain_misfit(self, n: int) -> str | None:
        """Why a layer whose neurons have ``n`` numbers cannot be turned, or None."""
        if n < 2:
            return f"its neurons have {n} number, which no rotation can turn"
        if self.name != "hra" and self.choose_block(n)[0] < 2:
            return f"no block from 2 to {self.block} divides the {n} numbers of its neurons"
        return None

    def choose_block(self, n: int) -> tuple[int, int]:
        """The largest block up to the one asked for that divides n, and how many butterfly factors it has room for.

        As many factors as were asked for come before a large block; with more than one a block is even.
        """
        for factors in range(self.factors or 1, 0, -1):
            multiple, step = 1 << (factors - 1), 1 if factors == 1 else 2
            for block in range(min(self.block, n), 1, -1):
                if block % step == 0 and n % (block * multiple) == 0:
                    return block, factors
        return 1, 1

    def describe(self, n: int) -> str:
        """What a layer with ``n`` numbers a neuron gets, in words."""
        if self.name == "hra":
            return f"{self._rank(n)} reflections"
        block, factors = self.choose_block(n)
        return f"block {block}" + (f", {factors} factors" if self.name == "boft" else "")

    def _rank(self, n: int) -> int:
        return min(self.rank or 2, n - n % 2)

    def create_rotation(self, parts: int, n: int, like: Tensor, generator: torch.Generator | None = None) -> Rotation:
        """A rotation of this kind for ``parts`` sets of neurons of ``n`` numbers, at the identity."""
        block, factors = self.choose_block(n)
        kinds: dict[str, Callable[[], Rotation]] = {
            "oft": lambda: BlockRotation(parts, n, block, self.terms, None, like),
            "coft": lambda: BlockRotation(parts, n, block, self.terms, self.eps, like),
            "boft": lambda: ButterflyRotation(parts, n, block, factors, self.terms, like),
            "hra": lambda: ReflectionRotation(parts, n, self._rank(n), like, generator),
            "poet": lambda: PermutedRotation(parts, n, block, self.terms, like, generator),
        }
        return kinds[self.name]()
