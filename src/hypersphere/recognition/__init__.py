"""What runs after training: embedder files, features of pictures, search, galleries of identities, export, service."""

from .approximate import ApproximateIndex
from .audit import Finding, audit
from .calibration import Calibration
from .embedder import Embedder
from .evaluate_pairs import evaluate_pairs
from .evaluate_source import evaluate
from .evaluation_result import Evaluation
from .features import Features, all_processes, embed, extract_features, load_features, save_features
from .gallery import Forgotten, Gallery, GalleryInfo, Identification, Match, Rejection
from .hub_folder import push_hub_folder, write_hub_folder
from .loading import load
from .migration import Migration, learn_map, migrate, rekey
from .networks import embedding
from .onnx_export import OnnxReport, export_onnx
from .pair_report import PairReport, pair_report
from .search import search
from .stores import DamagedGalleryError, Recall

__all__ = [
    "ApproximateIndex",
    "Calibration",
    "DamagedGalleryError",
    "Embedder",
    "Evaluation",
    "Features",
    "Finding",
    "Forgotten",
    "Gallery",
    "GalleryInfo",
    "Identification",
    "Match",
    "Migration",
    "OnnxReport",
    "PairReport",
    "Recall",
    "Rejection",
    "all_processes",
    "audit",
    "embed",
    "embedding",
    "evaluate",
    "evaluate_pairs",
    "export_onnx",
    "extract_features",
    "learn_map",
    "load",
    "load_features",
    "migrate",
    "pair_report",
    "push_hub_folder",
    "rekey",
    "save_features",
    "search",
    "write_hub_folder",
]
