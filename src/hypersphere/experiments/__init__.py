"""Experiments: what is trained, measured and drawn with the library."""

from . import recipes
from .config import Config, from_json, replace, to_json
from .engine import Experiment, NonFiniteLossError
from .log import read_log

__all__ = ["Config", "Experiment", "NonFiniteLossError", "from_json", "read_log", "recipes", "replace", "to_json"]
