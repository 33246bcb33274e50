"""Train an embedder on pictures sorted by identity, with defaults chosen from the data, and report on other identities."""

from .choices import Choice
from .fit import fit
from .run import Run
from .settings import FitSettings

__all__ = ["Choice", "FitSettings", "Run", "fit"]
