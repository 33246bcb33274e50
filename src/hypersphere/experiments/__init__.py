"""Recipes and claims of Liu (2020), on top of training."""

from . import recipes

__all__ = ["recipes"]
