"""What runs after training: embedder files, features of pictures, search, galleries of identities, export, service."""

from .approximate import ApproximateIndex
from .calibration import Calibration
from .embedder import Embedder
from .evaluate_pairs import evaluate_pairs
from .evaluate_source import evaluate
from .evaluation_result import Evaluation
from .features import Features, all_processes, embed, extract_features, load_features, save_features
from .gallery import Gallery, Identification, Match
from .hub_folder import push_hub_folder, write_hub_folder
from .loading import load
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
    "Gallery",
    "Identification",
    "Match",
    "OnnxReport",
    "PairReport",
    "Recall",
    "all_processes",
    "embed",
    "embedding",
    "evaluate",
    "evaluate_pairs",
    "export_onnx",
    "extract_features",
    "load",
    "load_features",
    "pair_report",
    "push_hub_folder",
    "save_features",
    "search",
    "write_hub_folder",
]
