"""From a folder of pictures to a recogniser: defaults from the data, training, and a report on identities never seen."""

from .choices import Choice
from .finished_run import Run
from .fit import fit
from .fit_settings import FitSettings

__all__ = ["Choice", "FitSettings", "Run", "fit"]
