"""Heads that see a part of their classes in each step, and optimizers that touch the rows of that part only."""

from .rows import drawn_rows
from .sample import Sample, as_sample, hashed

__all__ = ["Sample", "as_sample", "drawn_rows", "hashed"]
