"""Methods of fine-tuning and their options."""

from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias, get_args

from .block_rotation import BlockRotation, PermutedRotation
from .butterfly_rotation import ButterflyRotation
from .low_rank import Decomposed, LowRank, NormalizedLowRank
from .reflection_rotation import ReflectionRotation
from .rotated import Rotated
from .weight_change import MethodKind

TuningName: TypeAlias = Literal["oft", "coft", "boft", "hra", "poet", "lora", "nora", "dora"]
TUNING_NAMES: tuple[TuningName, ...] = get_args(TuningName)
# All methods: the class of the change, its options except ``block`` with their defaults, and the class of the rotation. A new
# method needs one entry here and its name above.
KINDS: dict[str, MethodKind] = {
    "oft": MethodKind(Rotated, {"terms": None, "lengths": False}, BlockRotation),
    "coft": MethodKind(Rotated, {"terms": None, "eps": 6e-5}, BlockRotation),  # eps: the value of the authors' code
    "boft": MethodKind(Rotated, {"terms": None, "factors": 2, "lengths": False}, ButterflyRotation),
    "hra": MethodKind(Rotated, {"rank": 8, "lengths": False}, ReflectionRotation),  # rank: the authors' value
    "poet": MethodKind(Rotated, {"terms": None}, PermutedRotation, two_sided=True),
    "lora": MethodKind(LowRank, {"rank": 8, "alpha": None}),  # rank: peft's default
    "nora": MethodKind(NormalizedLowRank, {"rank": 8, "alpha": None}),
    "dora": MethodKind(Decomposed, {"rank": 8, "alpha": None}),
}
_OPTIONS = ("terms", "eps", "factors", "rank", "alpha", "lengths")


@dataclass(frozen=True)
class TuningMethod:
    """A method of fine-tuning and its options. Options of other methods must be None.

    Args:
        name: ``"oft"``, ``"coft"``, ``"boft"``, ``"hra"``, ``"poet"``, ``"lora"``, ``"nora"`` or ``"dora"``.
        block: Size of a block of a rotation. If it does not divide the size of a layer, the largest smaller divisor is used.
        terms: None for the exact Cayley transform, or an even number of terms of its Neumann series.
        eps: Largest ‖R − I‖ of ``"coft"``, 6·10⁻⁵ by default.
        factors: Number of butterfly factors of ``"boft"``, 2 by default.
        rank: Even number of reflections of ``"hra"``, or the rank of a low-rank change; 8 by default.
        alpha: α of the scale α/r of a low-rank change; None is the rank, so that the scale is 1.
        lengths: Whether a rotation also learns a factor for the length of each neuron; False by default.

    Raises:
        ValueError: If the name is unknown, the method does not have an option, or a value is out of range.

    >>> TuningMethod("hra").options()
    {'name': 'hra', 'block': 32, 'rank': 8, 'lengths': False}
    """

    name: TuningName = "oft"
    block: int = 32
    terms: int | None = None
    eps: float | None = None
    factors: int | None = None
    rank: int | None = None
    alpha: float | None = None
    lengths: bool | None = None

    def __post_init__(self) -> None:
        if self.name not in TUNING_NAMES:
            raise ValueError(f"method must be one of {', '.join(TUNING_NAMES)}, got {self.name!r}")
        defaults = self.kind.defaults
        for option in _OPTIONS:
            value = getattr(self, option)
            if option in defaults:
                object.__setattr__(self, option, defaults[option] if value is None else value)
            elif value is not None:
                raise ValueError(
                    f"{option}={value!r} has no meaning for {self.name!r}, which takes {', '.join(defaults)}"
                )
        if self.block < 2:
            raise ValueError(f"block must be an integer ≥ 2, got {self.block!r}")
        if self.terms is not None and (self.terms < 2 or self.terms % 2):
            raise ValueError(f"terms must be an even integer ≥ 2, or None for the exact transform, got {self.terms!r}")
        for name in ("eps", "alpha"):
            if (value := getattr(self, name)) is not None and not value > 0:
                raise ValueError(f"{name} must be a number > 0, got {value!r}")
        if self.factors is not None and self.factors < 1:
            raise ValueError(f"factors must be an integer ≥ 1, got {self.factors!r}")
        if self.rank is not None and self.kind.rotation is not None and (self.rank < 2 or self.rank % 2):
            raise ValueError(
                f"rank must be an even integer ≥ 2, so that R can start as the identity, got {self.rank!r}"
            )
        if self.rank is not None and self.rank < 1:
            raise ValueError(f"rank must be an integer ≥ 1, got {self.rank!r}")

    @property
    def kind(self) -> MethodKind:
        """The entry of the table of methods."""
        return KINDS[self.name]

    def options(self) -> dict[str, Any]:
        """Return the arguments of the method, without options of other methods."""
        return {key: value for key, value in asdict(self).items() if value is not None}

    def explain_misfit(self, n: int) -> str | None:
        """Return why a layer with neurons of ``n`` numbers cannot be tuned, or None."""
        return self.kind.change.explain_misfit(self, n)

    def choose_block(self, n: int) -> tuple[int, int]:
        """Return the largest block up to ``block`` that divides n, and the number of butterfly factors that fit.

        More factors are preferred to a larger block. With more than one factor, blocks have an even size.
        """
        for factors in range(self.factors or 1, 0, -1):
            multiple, step = 1 << (factors - 1), 1 if factors == 1 else 2
            for block in range(min(self.block, n), 1, -1):
                if block % step == 0 and n % (block * multiple) == 0:
                    return block, factors
        return 1, 1

    def describe(self, n: int) -> str:
        """Describe the change of a layer with neurons of ``n`` numbers in a few words."""
        return self.kind.change.describe(self, n)
