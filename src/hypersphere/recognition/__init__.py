"""What runs after training: embedder files, features of images, exact and approximate search, galleries of known identities."""

from .approximate import ApproximateIndex
from .embedding import Features, embed, load_features, save_features
from .gallery import Gallery, Match
from .model_file import EmbeddingModel, Preprocessing, fingerprint, load_model, save_model
from .search import search

__all__ = [
    "ApproximateIndex",
    "EmbeddingModel",
    "Features",
    "Gallery",
    "Match",
    "Preprocessing",
    "embed",
    "fingerprint",
    "load_features",
    "load_model",
    "save_features",
    "save_model",
    "search",
]
