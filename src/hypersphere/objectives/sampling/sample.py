"""Sampling of classes: each step uses all classes of the batch and a random part of the others."""

import math

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

from ..margins.margin import Context, Strength, evaluate_strength

CLASSES_PER_BLOCK = 2**20
"""Number of classes drawn at a time, which limits the memory that drawing needs."""


class Sample(nn.Module):
    r"""All classes of the batch, and each other class with the probability ``rate``.

    Whether a class is drawn depends only on (``seed``, step, class), and neither on the number of processes nor on torch's
    random state. The step is a buffer, saved with the head and advanced by ``head.step()``, so a resumed run draws the same
    classes as an uninterrupted one. Evaluation uses all classes.

    Args:
        rate: A number in (0, 1], or a schedule such as ``Stages([0.1, 1.0], at=[9000])``, which starts with few classes and
            ends with all of them.
        unbiased: Whether to weight each drawn class by 1/rate, so that sums over classes, such as the Σ exp of the softmax,
            have the right expectation. Without it, as usual, the loss is that of a head with the drawn classes only.
        seed: Seed of the draws.

    >>> drawn = Sample(0.25).draw_classes(0, 10_000, torch.tensor([17]))
    >>> bool(drawn[17]), 0.23 < drawn.float().mean().item() < 0.27
    (True, True)
    """

    steps: Tensor

    def __init__(self, rate: float | Strength = 0.1, unbiased: bool = False, seed: int = 0):
        super().__init__()
        low, high = (rate.least, rate.most) if isinstance(rate, Strength) else (rate, rate)
        if isinstance(rate, bool) or not (math.isfinite(low) and 0 < low <= high <= 1):
            raise ValueError(f"rate must be a number in (0, 1], or a schedule of such numbers, got {rate!r}")
        if not 0 <= seed < 2**31:
            raise ValueError(f"seed must be an integer in [0, 2³¹), got {seed!r}")
        self.schedule, self.unbiased, self.seed = rate, unbiased, seed
        self.register_buffer("steps", torch.tensor(0, dtype=torch.int64))

    @property
    def rate(self) -> float:
        """The probability in the current step."""
        return float(evaluate_strength(self.schedule, Context()))

    def draw_classes(self, first: int, size: int, positives: Int[Tensor, "n"]) -> Bool[Tensor, "c"]:
        """Draw the classes of this step from ``size`` classes, the first of which is ``first``.

        Args:
            first: Index of the first class.
            size: Number of classes.
            positives: Classes of the batch, which are always drawn.

        Returns:
            Whether each class is drawn.
        """
        step, limit = int(self.steps), int(self.rate * 2**53)
        starts = range(first, first + size, CLASSES_PER_BLOCK)
        ends = [min(start + CLASSES_PER_BLOCK, first + size) for start in starts]
        device = positives.device
        blocks = [
            hash_classes(self.seed, step, torch.arange(a, b, device=device)) < limit
            for a, b in zip(starts, ends, strict=True)
        ]
        chosen = torch.cat(blocks) if blocks else torch.zeros(0, dtype=torch.bool, device=device)
        is_local = (positives >= first) & (positives < first + size)
        chosen[positives[is_local] - first] = True
        return chosen

    def step(self) -> None:
        """Advance by one step; the next step draws other classes."""
        self.steps += 1
        if isinstance(self.schedule, Strength):
            self.schedule.step()

    def extra_repr(self) -> str:
        """Return the rate and the options that differ from their defaults."""
        rate = "" if isinstance(self.schedule, Strength) else f"rate={self.schedule:g}, "
        return f"{rate}unbiased={self.unbiased}, seed={self.seed}"


def hash_classes(seed: int, step: int, classes: Int[Tensor, "c"]) -> Int[Tensor, "c"]:
    """Return 53 random bits per class from splitmix64 (Steele et al., 2014), computed with int64 that wraps around.

    >>> hash_classes(0, 0, torch.arange(2)).tolist() == hash_classes(0, 0, torch.arange(1, -1, -1)).flip(0).tolist()
    True
    """
    state = _mix_bits(_mix_bits(torch.tensor(seed, device=classes.device)) + step)
    return _shift_right(_mix_bits(state + classes), 11)


def _mix_bits(x: Tensor) -> Tensor:
    """Return one step of splitmix64."""
    x = x + _to_signed(0x9E3779B97F4A7C15)
    x = (x ^ _shift_right(x, 30)) * _to_signed(0xBF58476D1CE4E5B9)
    x = (x ^ _shift_right(x, 27)) * _to_signed(0x94D049BB133111EB)
    return x ^ _shift_right(x, 31)


def _shift_right(x: Tensor, bits: int) -> Tensor:
    """Shift an int64 to the right as if it were unsigned."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _to_signed(x: int) -> int:
    """Return the int64 with the bits of an unsigned 64-bit integer."""
    return x - 2**64 if x >= 2**63 else x
