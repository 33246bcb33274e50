"""Where galleries keep their identities: in an SQLite file or on a PostgreSQL server, behind one protocol."""

from .store import DamagedGalleryError, Recall, Store, normal_name, open_store

__all__ = ["DamagedGalleryError", "Recall", "Store", "normal_name", "open_store"]
