"""Heads whose classes are divided among processes, which communicate only vectors of the batch's length."""

from .best_classes import Best, find_best_classes, gather_best_classes, gather_class_logits
from .shards import Bounds, Shards
from .storage import (
    Over,
    convert_stored,
    create_shards,
    find_sharded_parameters,
    fit_state,
    gather_state_dict,
    gather_tree,
    ignore_shards,
    shard_rows,
    wrap_shard,
)

__all__ = [
    "Best",
    "Bounds",
    "Over",
    "Shards",
    "convert_stored",
    "create_shards",
    "find_best_classes",
    "find_sharded_parameters",
    "fit_state",
    "gather_best_classes",
    "gather_class_logits",
    "gather_state_dict",
    "gather_tree",
    "ignore_shards",
    "shard_rows",
    "wrap_shard",
]
