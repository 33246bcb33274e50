"""Experiments: what is trained, measured and drawn with the library."""

from ..training.config import Config, from_json, replace, to_json
from ..training.engine import Experiment, NonFiniteLossError
from ..training.log import read_log
from . import recipes

__all__ = ["Config", "Experiment", "NonFiniteLossError", "from_json", "read_log", "recipes", "replace", "to_json"]
