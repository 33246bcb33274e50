"""What runs after training: embedder files, features of images, exact and approximate search, galleries of identities."""

from .approximate import ApproximateIndex
from .embedder import Embedder
from .embedding import Features, embed, load_features, save_features
from .gallery import Gallery, Match
from .networks import embedding
from .search import search

__all__ = [
    "ApproximateIndex",
    "Embedder",
    "Features",
    "Gallery",
    "Match",
    "embed",
    "embedding",
    "load_features",
    "save_features",
    "search",
]
