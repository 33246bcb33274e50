"""What a gallery needs of the place where its identities are kept, written down once for SQLite and PostgreSQL."""

import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor

SERVER = ("postgresql://", "postgres://")
Settings = Mapping[str, str | None]


class Recall(NamedTuple):
    """How many of the exact ``k`` nearest templates an approximate index finds, measured on ``probes`` templates.

    >>> gallery = hs.recognition.Gallery("postgresql://ada@localhost/people#staff")  # doctest: +SKIP
    >>> gallery.build_index(k=10, probes=100).recall > 0.95  # doctest: +SKIP
    True
    """

    recall: float
    k: int
    probes: int


class DamagedGalleryError(OSError):
    """What is stored does not fit its checksum, or a part of it is missing.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with hs.recognition.Gallery(f"{folder}/people.db") as gallery:
    ...         _ = gallery.enrol("ada", torch.eye(2))
    ...     Path(folder, "people.db.features-0").unlink()
    ...     with hs.recognition.Gallery(f"{folder}/people.db") as gallery:
    ...         gallery.identify(torch.eye(2), threshold=0.5)
    Traceback (most recent call last):
    hypersphere.recognition.stores.store.DamagedGalleryError: ... is missing...
    """


class UncertainCommitError(OSError):
    """The connection was lost while a change was committed, so it is not known whether the change was made.

    Enrolling templates with sources again is safe, and so is storing a calibration again. Removing again finds nobody if the
    first attempt succeeded.
    """


@runtime_checkable
class Store(Protocol):
    """Identities with templates. Every change is one transaction: on disk when the method returns, or not at all."""

    location: str
    """where it is, without a password, as messages name it"""
    fingerprint: str | None
    """of the model whose features it holds, as stored when it was created"""

    def settings(self) -> Settings:
        """Return all settings of one moment; ``people`` is always among them, the number of identities."""

    def put(self, values: Mapping[str, str | None]) -> None:
        """Keep settings, all or none."""

    def enrol(self, names: Sequence[str], features: Float[Tensor, "n d"], sources: Sequence[str]) -> list[int]:
        """Add one template a row and return their numbers; a named source that the identity has already is not doubled."""

    def remove(self, name: str) -> int | None:
        """Forget an identity; return how many templates it had, None if there is no such identity."""

    def counts(self, after: str = "", limit: int | None = None) -> dict[str, int]:
        """Return the number of templates of the first ``limit`` identities behind ``after``, in alphabetical order."""

    def features_of(self, name: str) -> Float[Tensor, "t d"] | None:
        """Return the templates of an identity as they were given, in their order, None if there is no such identity."""

    def nearest(self, probes: Float[Tensor, "p d"], k: int, approximate: bool = False) -> list[list[tuple[str, float]]]:
        """Return the ``k`` identities with the best templates by cosine for each probe, best first, with that cosine."""

    def build_index(self, k: int, probes: int) -> Recall:
        """Build an approximate index of all templates and measure its recall."""

    def check(self) -> list[str]:
        """Read everything and return what is wrong with it, nothing if all is well."""

    def backup(self, target: Path) -> None:
        """Write a consistent copy as an SQLite gallery while others go on reading."""

    def close(self) -> None:
        """Let go of the file or the connection."""


def is_server(location: str | Path) -> bool:
    """Return whether a location is the address of a server rather than a file.

    >>> is_server("postgresql://ada@host/people#staff"), is_server("people.db")
    (True, False)
    """
    return str(location).startswith(SERVER)


def describe_location(location: str | Path) -> str:
    """Return a location for messages: a path, or an address without its password.

    >>> describe_location("people.db")
    'people.db'
    """
    if not is_server(location):
        return str(location)
    from .postgres_database import redact_address

    return redact_address(str(location))


def open_store(location: str | Path, fingerprint: str | None, *, create: bool, readonly: bool) -> Store:
    """Open the store that ``location`` names, a file or ``postgresql://…``; nothing is made unless ``create``."""
    if is_server(location):
        from .postgres_store import PostgresStore

        return PostgresStore(str(location), fingerprint, create=create and not readonly, readonly=readonly)
    from .sqlite_store import SQLiteStore

    return SQLiteStore(location, fingerprint, create=create and not readonly, readonly=readonly)


def normalize_name(identity: str) -> str:
    """Return the name as it is kept and compared: Unicode's composed form (NFC), so that é is é however it was typed.

    >>> normalize_name("Jose\\u0301") == normalize_name("Jos\\u00e9")
    True
    """
    if not isinstance(identity, str) or not identity:
        raise ValueError(f"identity must be a name, got {'an empty string' if identity == '' else repr(identity)}")
    bad = next((c for c in identity if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp")), None)
    if bad is not None:
        raise ValueError(f"identity must be text without tabs, line breaks or broken characters, got {identity!r}")
    return unicodedata.normalize("NFC", identity)
