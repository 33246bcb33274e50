"""What runs after training: embedder files, features of images, exact and approximate search, galleries of identities."""

from .approximate import ApproximateIndex
from .calibrating import Calibration
from .embedder import Embedder
from .embedding import Features, embed, load_features, save_features
from .gallery import Gallery, Match
from .networks import embedding
from .search import search
from .stores import DamagedGalleryError, Recall

__all__ = [
    "ApproximateIndex",
    "Calibration",
    "DamagedGalleryError",
    "Embedder",
    "Features",
    "Gallery",
    "Match",
    "Recall",
    "embed",
    "embedding",
    "load_features",
    "save_features",
    "search",
]
