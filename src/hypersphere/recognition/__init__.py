"""What runs after training: embedder files, features of images, exact and approximate search, galleries of identities."""

from .approximate import ApproximateIndex
from .calibrating import Calibration
from .embedder import Embedder
from .embedding import Features, embed, load_features, save_features
from .evaluate_pairs import evaluate_pairs
from .evaluate_source import evaluate
from .evaluation_result import Evaluation
from .gallery import Gallery, Match
from .hub_folder import push_hub_folder, write_hub_folder
from .loading import load
from .networks import embedding
from .onnx_export import OnnxReport, export_onnx
from .pair_report import PairReport, pair_report
from .search import search
from .source_features import source_features
from .stores import DamagedGalleryError, Recall

__all__ = [
    "ApproximateIndex",
    "Calibration",
    "DamagedGalleryError",
    "Embedder",
    "Evaluation",
    "Features",
    "Gallery",
    "Match",
    "OnnxReport",
    "PairReport",
    "Recall",
    "embed",
    "embedding",
    "evaluate",
    "evaluate_pairs",
    "export_onnx",
    "load",
    "load_features",
    "pair_report",
    "push_hub_folder",
    "save_features",
    "search",
    "source_features",
    "write_hub_folder",
]
