"""Charts: each function takes tensors or numbers, draws on ``ax`` or on a new figure, and returns ``(fig, ax)``.

Drawing needs matplotlib, which is imported when the first chart is drawn. New figures are not registered globally, so they
need no display and do not have to be closed. Use ``axes``, ``panels``, ``color``, ``style`` and ``tidy`` for your own charts
in the same style.
"""

from .bars import plot_bars, plot_reliability
from .canvas import axes, color, panels, style, tidy
from .class_norms import plot_class_biases, plot_class_norms
from .curves import plot_angular, plot_dynamics, plot_magnitude
from .filters import plot_filters
from .histograms import plot_angle_histogram, plot_histogram, plot_learned_k
from .layer_energies import plot_layer_energies
from .recognition import (
    plot_cmc,
    plot_contact_sheet,
    plot_cosine_confusion,
    plot_det,
    plot_distractors,
    plot_rejection,
    plot_roc,
)
from .scatter import plot_features, plot_neurons

__all__ = [
    "axes",
    "color",
    "panels",
    "plot_angle_histogram",
    "plot_angular",
    "plot_bars",
    "plot_class_biases",
    "plot_class_norms",
    "plot_cmc",
    "plot_contact_sheet",
    "plot_cosine_confusion",
    "plot_det",
    "plot_distractors",
    "plot_dynamics",
    "plot_features",
    "plot_filters",
    "plot_histogram",
    "plot_layer_energies",
    "plot_learned_k",
    "plot_magnitude",
    "plot_neurons",
    "plot_rejection",
    "plot_reliability",
    "plot_roc",
    "style",
    "tidy",
]
