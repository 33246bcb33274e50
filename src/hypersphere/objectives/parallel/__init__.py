"""Heads whose classes are divided among processes: rows of the weight here, the others' found by a few short vectors."""

from .best_classes import Best, best_of, best_over, logits_over
from .shards import Bounds, Shards
from .storage import (
    Over,
    divided,
    fit_state,
    fitted,
    ignore_shards,
    in_shards,
    sharded_parameters,
    shards_of,
    whole,
    whole_state_dict,
)

__all__ = [
    "Best",
    "Bounds",
    "Over",
    "Shards",
    "best_of",
    "best_over",
    "divided",
    "fit_state",
    "fitted",
    "ignore_shards",
    "in_shards",
    "logits_over",
    "sharded_parameters",
    "shards_of",
    "whole",
    "whole_state_dict",
]
