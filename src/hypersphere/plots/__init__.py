"""Pictures of the theory: each function returns ``(fig, ax)`` and draws on given axes if asked. Needs matplotlib."""

from .curves import plot_angular, plot_dynamics, plot_magnitude
from .features import plot_features, plot_neurons
from .filters import plot_filters
from .histograms import plot_angle_histogram, plot_learned_k
from .recognition import plot_cmc, plot_cosine_confusion, plot_roc

__all__ = [
    "plot_angle_histogram",
    "plot_angular",
    "plot_cmc",
    "plot_cosine_confusion",
    "plot_dynamics",
    "plot_features",
    "plot_filters",
    "plot_learned_k",
    "plot_magnitude",
    "plot_neurons",
    "plot_roc",
]
