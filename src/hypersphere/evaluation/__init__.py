"""Measures of features and classifiers on the sphere."""

from .class_geometry import ClassAngles, angular_fisher_score, class_angles
from .hardness import angular_visual_hardness, model_confidence

__all__ = ["ClassAngles", "angular_fisher_score", "angular_visual_hardness", "class_angles", "model_confidence"]
