"""Open-set evaluation of features: verification, identification, galleries, robustness, few-shot, feature geometry."""

from ..energy import alignment
from ..energy import gaussian_uniformity as uniformity
from .accumulator import VerificationAccumulator
from .attacks import adversarial_loss, bim, fgsm, pgd, random_noise
from .calibration import CalibrationReport, calibration, expected_calibration_error
from .class_geometry import ClassAngles, angular_fisher_score, class_angles
from .collapse import CollapseReport, neural_collapse
from .deepfool import deepfool, strength
from .episodes import Episodes, sample_episodes
from .features import ensemble, fold_scores, mirrored, pair_scores
from .few_shot import FewShotReport, few_shot
from .frechet import frechet_distance
from .hardness import angular_visual_hardness, model_confidence
from .identification import DistractorReport, IdentificationReport, distractor_identification, identification
from .intervals import Estimate, mean_interval, wilson
from .open_set import OpenSetReport, open_set
from .report import Report
from .robustness import RobustnessReport, robustness, transfer
from .roc import Roc, roc_curve, threshold_at_far
from .unseen import UnseenReport, unseen_classes
from .verification import VerificationReport, verification

__all__ = [
    "CalibrationReport",
    "ClassAngles",
    "CollapseReport",
    "DistractorReport",
    "Episodes",
    "Estimate",
    "FewShotReport",
    "IdentificationReport",
    "OpenSetReport",
    "Report",
    "RobustnessReport",
    "Roc",
    "UnseenReport",
    "VerificationAccumulator",
    "VerificationReport",
    "adversarial_loss",
    "alignment",
    "angular_fisher_score",
    "angular_visual_hardness",
    "bim",
    "calibration",
    "class_angles",
    "deepfool",
    "distractor_identification",
    "ensemble",
    "expected_calibration_error",
    "few_shot",
    "fgsm",
    "fold_scores",
    "frechet_distance",
    "identification",
    "mean_interval",
    "mirrored",
    "model_confidence",
    "neural_collapse",
    "open_set",
    "pair_scores",
    "pgd",
    "random_noise",
    "robustness",
    "roc_curve",
    "sample_episodes",
    "strength",
    "threshold_at_far",
    "transfer",
    "uniformity",
    "unseen_classes",
    "verification",
    "wilson",
]
