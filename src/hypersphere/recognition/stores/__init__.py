"""Where galleries keep their identities: in an SQLite file or on a PostgreSQL server, behind one protocol."""

from .store import (
    DamagedGalleryError,
    Recall,
    Store,
    UncertainCommitError,
    describe_location,
    is_server,
    normalize_name,
    open_store,
)

__all__ = [
    "DamagedGalleryError",
    "Recall",
    "Store",
    "UncertainCommitError",
    "describe_location",
    "is_server",
    "normalize_name",
    "open_store",
]
