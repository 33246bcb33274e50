"""Train an embedder on pictures sorted by identity, with defaults chosen from the data, and report on other identities."""

from ._fit import fit
from .choices import Choice
from .run import Run
from .settings import FitSettings

__all__ = ["Choice", "FitSettings", "Run", "fit"]
