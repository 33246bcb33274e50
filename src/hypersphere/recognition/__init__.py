"""Recognition with trained networks: embedder files, features, search, galleries of identities, export, service."""

from ._audit import Finding, audit
from ._evaluate_pairs import evaluate_pairs
from ._pair_report import PairReport, pair_report
from ._search import Int8Rows, search
from .album import Added, Album, Group, Sample
from .album_export import export_folder, export_gallery, export_table
from .approximate import ApproximateIndex
from .calibration import Calibration
from .embedder import Embedder
from .evaluate_source import evaluate
from .evaluation_result import Evaluation
from .features import Features, all_processes, embed, extract_features, load_features, save_features
from .gallery import Gallery
from .gallery_results import Forgotten, GalleryInfo, Identification, Match, Rejection
from .grouping import Constraints, group_features, membership
from .grouping_calibration import calibrate_features, find_calibration, measure_calibration
from .hard_negatives import HardNegatives, find_confusable_classes, mine_hard_negatives
from .hub_folder import push_hub_folder, write_hub_folder
from .label_check import LabelReport, Suspicion, check_labels, write_cleaned_table
from .loading import load
from .migration import FeatureMap, Migration, learn_map, migrate, rekey
from .onnx_export import OnnxReport, export_onnx
from .stores import DamagedGalleryError, Recall

__all__ = [
    "Added",
    "Album",
    "ApproximateIndex",
    "Calibration",
    "Constraints",
    "DamagedGalleryError",
    "Embedder",
    "Evaluation",
    "FeatureMap",
    "Features",
    "Finding",
    "Forgotten",
    "Gallery",
    "GalleryInfo",
    "Group",
    "HardNegatives",
    "Identification",
    "Int8Rows",
    "LabelReport",
    "Match",
    "Migration",
    "OnnxReport",
    "PairReport",
    "Recall",
    "Rejection",
    "Sample",
    "Suspicion",
    "all_processes",
    "audit",
    "calibrate_features",
    "check_labels",
    "embed",
    "evaluate",
    "evaluate_pairs",
    "export_folder",
    "export_gallery",
    "export_onnx",
    "export_table",
    "extract_features",
    "find_calibration",
    "find_confusable_classes",
    "group_features",
    "learn_map",
    "load",
    "load_features",
    "measure_calibration",
    "membership",
    "migrate",
    "mine_hard_negatives",
    "pair_report",
    "push_hub_folder",
    "rekey",
    "save_features",
    "search",
    "write_cleaned_table",
    "write_hub_folder",
]
