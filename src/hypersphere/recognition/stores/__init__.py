"""Storage of galleries: SQLite files and PostgreSQL servers behind one protocol, with optional encryption."""

from .store import (
    CounterExample,
    DamagedGalleryError,
    Recall,
    Store,
    Templates,
    UncertainCommitError,
    describe_location,
    is_server,
    normalize_name,
    open_store,
)

__all__ = [
    "CounterExample",
    "DamagedGalleryError",
    "Recall",
    "Store",
    "Templates",
    "UncertainCommitError",
    "describe_location",
    "is_server",
    "normalize_name",
    "open_store",
]
