"""Recipes: the experiments of Liu (2020) as functions that return a config, one file per chapter."""

from . import chapter2, chapter3, chapter4, chapter5, chapter6, chapter7
from .recipe_book import RECIPES, SIZES, Recipe, Size, get, recipe

__all__ = [
    "RECIPES",
    "SIZES",
    "Recipe",
    "Size",
    "chapter2",
    "chapter3",
    "chapter4",
    "chapter5",
    "chapter6",
    "chapter7",
    "get",
    "recipe",
]
