"""Heads that see a part of their classes in each step, and optimizers that touch the rows of that part only."""

from .lazy import RowOptimizer
from .row_adam import RowAdam
from .row_sgd import RowSGD
from .rows import select_rows
from .sample import Sample, hash_classes

__all__ = ["RowAdam", "RowOptimizer", "RowSGD", "Sample", "hash_classes", "select_rows"]
