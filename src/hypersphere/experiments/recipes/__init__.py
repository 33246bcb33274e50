"""Recipes: the experiments of the text as functions that return a config, one file a chapter."""

from . import chapter2
from .base import RECIPES, SIZES, Recipe, Size, get, recipe

__all__ = ["RECIPES", "SIZES", "Recipe", "Size", "chapter2", "get", "recipe"]
