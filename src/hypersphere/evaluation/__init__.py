"""Measures and reports: verification, identification, open-set recognition, robustness, few-shot, feature geometry."""

from ..energy import alignment, uniformity
from ..models.network import evaluation_mode
from ._all_pairs import AllPairs, PairErrors, all_pairs
from ._calibration import CalibrationReport, calibration, expected_calibration_error
from ._clustering import ClusteringReport, clustering
from ._deepfool import deepfool, strength
from ._energy_distance import energy_distance
from ._few_shot import Episodes, FewShotReport, few_shot, sample_episodes
from ._identification import IdentificationReport, identification
from ._inception_score import InceptionScore, inception_score
from ._open_set_report import OpenSetReport, open_set_report
from ._rerank import TableScore, rerank
from ._retrieval import RetrievalReport, retrieval
from ._robustness import RobustnessReport, robustness, transfer
from ._templates import Templates, templates
from ._verification import VerificationReport, verification
from .accumulator import VerificationAccumulator
from .attacks import adversarial_loss, bim, fgsm, pgd, random_noise
from .baselines import (
    Baseline,
    compare_with_baselines,
    format_baselines,
    simple_features,
    spectrogram_features,
    summarize_baselines,
)
from .categories import CategoryRates
from .class_geometry import ClassAngles, angular_fisher_score, class_angles
from .collapse import CollapseReport, neural_collapse
from .comparison import DifferenceReport, TooFewIdentitiesError, compare_embedders, paired_difference
from .concentration import vmf_confidence
from .descriptor_fitting import FittedDescriptors, fit_descriptors, fit_discriminant, principal_components
from .detection import DetectionReport, open_set
from .distractors import DistractorReport, distractor_identification
from .evidence import Evidence, choose_samples, thumbnails
from .features import append_mirrored, ensemble, fold_scores, pair_scores
from .figures import Figure, Report
from .frechet import frechet_distance
from .gathering import gather_features
from .hardness import angular_visual_hardness, model_confidence
from .intervals import Measurement, mean_interval, wilson
from .retrieval_measures import (
    map_at_r,
    mean_average_precision,
    mean_reciprocal_rank,
    mutual_information,
    normalized_mutual_information,
    r_precision,
    recall_at_k,
)
from .roc import Roc, StreamedRoc, roc_curve
from .score_calibration import (
    IsotonicCalibration,
    LogisticCalibration,
    ScoreCalibration,
    ScoreReport,
    calibrate_scores,
    score_report,
)
from .scoring import ASNorm, CosineScore, MutualLikelihood, QMagFace, Score
from .thresholds import DEFAULT_FARS, DEFAULT_FPIRS, OperatingPoint, choose_threshold
from .unseen import UnseenReport, unseen_classes

__all__ = [
    "DEFAULT_FARS",
    "DEFAULT_FPIRS",
    "ASNorm",
    "AllPairs",
    "Baseline",
    "CalibrationReport",
    "CategoryRates",
    "ClassAngles",
    "ClusteringReport",
    "CollapseReport",
    "CosineScore",
    "DetectionReport",
    "DifferenceReport",
    "DistractorReport",
    "Episodes",
    "Evidence",
    "FewShotReport",
    "Figure",
    "FittedDescriptors",
    "IdentificationReport",
    "InceptionScore",
    "IsotonicCalibration",
    "LogisticCalibration",
    "Measurement",
    "MutualLikelihood",
    "OpenSetReport",
    "OperatingPoint",
    "PairErrors",
    "QMagFace",
    "Report",
    "RetrievalReport",
    "RobustnessReport",
    "Roc",
    "Score",
    "ScoreCalibration",
    "ScoreReport",
    "StreamedRoc",
    "TableScore",
    "Templates",
    "TooFewIdentitiesError",
    "UnseenReport",
    "VerificationAccumulator",
    "VerificationReport",
    "adversarial_loss",
    "alignment",
    "all_pairs",
    "angular_fisher_score",
    "angular_visual_hardness",
    "append_mirrored",
    "bim",
    "calibrate_scores",
    "calibration",
    "choose_samples",
    "choose_threshold",
    "class_angles",
    "clustering",
    "compare_embedders",
    "compare_with_baselines",
    "deepfool",
    "distractor_identification",
    "energy_distance",
    "ensemble",
    "evaluation_mode",
    "expected_calibration_error",
    "few_shot",
    "fgsm",
    "fit_descriptors",
    "fit_discriminant",
    "fold_scores",
    "format_baselines",
    "frechet_distance",
    "gather_features",
    "identification",
    "inception_score",
    "map_at_r",
    "mean_average_precision",
    "mean_interval",
    "mean_reciprocal_rank",
    "model_confidence",
    "mutual_information",
    "neural_collapse",
    "normalized_mutual_information",
    "open_set",
    "open_set_report",
    "pair_scores",
    "paired_difference",
    "pgd",
    "principal_components",
    "r_precision",
    "random_noise",
    "recall_at_k",
    "rerank",
    "retrieval",
    "robustness",
    "roc_curve",
    "sample_episodes",
    "score_report",
    "simple_features",
    "spectrogram_features",
    "strength",
    "summarize_baselines",
    "templates",
    "thumbnails",
    "transfer",
    "uniformity",
    "unseen_classes",
    "verification",
    "vmf_confidence",
    "wilson",
]
