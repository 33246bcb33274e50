"""Heads that use a part of their classes in each step, and optimizers that update only the rows of these classes."""

from .lazy import RowOptimizer
from .row_adam import RowAdam
from .row_sgd import RowSGD
from .rows import select_rows
from .sample import Sample, hash_classes

__all__ = ["RowAdam", "RowOptimizer", "RowSGD", "Sample", "hash_classes", "select_rows"]
