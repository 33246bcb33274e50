"""Open-set evaluation of features: verification, identification, galleries, robustness, few-shot, feature geometry."""

from ..energy import alignment
from ..energy import gaussian_uniformity as uniformity
from .accumulator import VerificationAccumulator
from .approximate import ApproximateIndex
from .attacks import adversarial_loss, bim, fgsm, pgd, random_noise
from .calibration import CalibrationReport, calibration, expected_calibration_error
from .class_geometry import ClassAngles, angular_fisher_score, class_angles
from .collapse import CollapseReport, neural_collapse
from .deepfool import deepfool, strength
from .embedding import Features, embed, load_features, save_features
from .episodes import Episodes, sample_episodes
from .features import ensemble, fold_scores, mirrored, pair_scores
from .few_shot import FewShotReport, few_shot
from .frechet import frechet_distance
from .gallery import Gallery, Match
from .hardness import angular_visual_hardness, model_confidence
from .identification import DistractorReport, IdentificationReport, distractor_identification, identification
from .intervals import Estimate, mean_interval, wilson
from .model_file import EmbeddingModel, Preprocessing, fingerprint, load_model, save_model
from .open_set import OpenSetReport, open_set
from .report import Report
from .robustness import RobustnessReport, robustness, transfer
from .roc import Roc, roc_curve, threshold_at_far
from .search import search
from .unseen import UnseenReport, unseen_classes
from .verification import VerificationReport, verification

__all__ = [
    "ApproximateIndex",
    "CalibrationReport",
    "ClassAngles",
    "CollapseReport",
    "DistractorReport",
    "EmbeddingModel",
    "Episodes",
    "Estimate",
    "Features",
    "FewShotReport",
    "Gallery",
    "IdentificationReport",
    "Match",
    "OpenSetReport",
    "Preprocessing",
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
    "embed",
    "ensemble",
    "expected_calibration_error",
    "few_shot",
    "fgsm",
    "fingerprint",
    "fold_scores",
    "frechet_distance",
    "identification",
    "load_features",
    "load_model",
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
    "save_features",
    "save_model",
    "search",
    "strength",
    "threshold_at_far",
    "transfer",
    "uniformity",
    "unseen_classes",
    "verification",
    "wilson",
]
