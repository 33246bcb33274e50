"""Comparisons: losses of the target's logit and the logits of the other classes."""

from .alpha_divergence import AlphaDivergence
from .binary import Binary
from .comparison_loss import Comparison, Reduce
from .cross_entropy import CrossEntropy
from .hinge import MultiClassHinge

__all__ = ["AlphaDivergence", "Binary", "Comparison", "CrossEntropy", "MultiClassHinge", "Reduce"]
