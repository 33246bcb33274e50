"""The interface of a gallery's storage, for SQLite files and PostgreSQL servers alike."""

import os
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor

SERVER_PREFIXES = ("postgresql://", "postgres://")
Settings = Mapping[str, str | None]


class Recall(NamedTuple):
    """The share of the exact ``k`` nearest templates that an approximate index finds, measured with ``probes`` templates.

    >>> gallery = hs.recognition.Gallery("postgresql://ada@localhost/people#staff")  # doctest: +SKIP
    >>> gallery.build_index(k=10, probes=100).recall > 0.95  # doctest: +SKIP
    True
    """

    recall: float
    k: int
    probes: int


class Templates(NamedTuple):
    """All templates of a gallery in the order of their numbers, one entry per template in each field.

    >>> Templates(["ada"], [1], ["1.png"], torch.eye(2)[:1]).identities
    ['ada']
    """

    identities: list[str]
    numbers: list[int]
    sources: list[str]
    """paths of the pictures, empty if none was given"""
    features: Float[Tensor, "n d"]


class CounterExample(NamedTuple):
    """A feature of a sample that does not show an identity.

    >>> CounterExample("ada", "lookalike.png", torch.ones(2)).identity
    'ada'
    """

    identity: str
    source: str
    feature: Float[Tensor, "d"]


@runtime_checkable
class Cipher(Protocol):
    """Authenticated encryption of bytes."""

    def encrypt(self, plain: bytes, context: bytes) -> bytes:
        """Return the ciphertext, bound to its context."""

    def decrypt(self, sealed: bytes, context: bytes) -> bytes:
        """Return the plain bytes, or raise a :class:`DamagedGalleryError` if they or the context were changed."""


class DamagedGalleryError(OSError):
    """Stored data that does not match its checksum, or of which a part is missing.

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
    """the file or address, without a password, for messages"""
    fingerprint: str | None
    """the fingerprint of the model, stored when the gallery was created"""
    readonly: bool
    """whether changes are refused"""
    protection: str | None
    """the salt and the check value of the key, stored when the gallery was created; None without encryption"""
    cipher: Cipher | None
    """encrypts features, unless a server has to compare them"""

    def settings(self) -> Settings:
        """Return a snapshot of all settings, with the numbers of ``people`` and ``counterexamples``."""

    def put(self, values: Mapping[str, str | None]) -> None:
        """Store settings in one transaction."""

    def enrol(self, names: Sequence[str], features: Float[Tensor, "n d"], sources: Sequence[str]) -> list[int]:
        """Add one template per row and return their numbers. The same source of an identity replaces its template."""

    def remove(self, name: str) -> int | None:
        """Remove an identity and its counter-examples; return how many templates it had, None if it is unknown."""

    def erase(self) -> list[str]:
        """Erase what removed rows left behind; return descriptions of what cannot be erased from here."""

    def reject(self, name: str, features: Float[Tensor, "n d"], sources: Sequence[str]) -> bool:
        """Store counter-examples of an identity; return whether the identity is known."""

    def counterexamples(self) -> list[CounterExample]:
        """Return all counter-examples in the order in which they were stored."""

    def counts(self, after: str = "", limit: int | None = None) -> dict[str, int]:
        """Return the number of templates of the first ``limit`` identities after ``after``, in alphabetical order."""

    def features_of(self, name: str) -> Float[Tensor, "t d"] | None:
        """Return the templates of an identity in the order of enrollment, None if there is no such identity."""

    def templates(self) -> Templates:
        """Return a snapshot of all templates."""

    def nearest(self, probes: Float[Tensor, "p d"], k: int, approximate: bool = False) -> list[list[tuple[str, float]]]:
        """Return for each probe the ``k`` identities with the best templates and their cosines, best first."""

    def build_index(self, k: int, probes: int) -> Recall:
        """Build an approximate index of all templates and measure its recall."""

    def check(self) -> list[str]:
        """Verify all checksums and return a list of problems."""

    def backup(self, target: Path) -> None:
        """Write a consistent copy as an SQLite gallery while others go on reading."""

    def files(self) -> list[Path]:
        """Return the files of the gallery, none on a server."""

    def close(self) -> None:
        """Close the file or the connection."""


def is_server(location: str | Path) -> bool:
    """Return whether a location is the address of a server rather than a file.

    >>> is_server("postgresql://ada@host/people#staff"), is_server("people.db")
    (True, False)
    """
    return str(location).startswith(SERVER_PREFIXES)


def describe_location(location: str | Path) -> str:
    """Return a location for messages: a path, or an address without its password.

    >>> describe_location("people.db")
    'people.db'
    """
    if not is_server(location):
        return str(location)
    from .postgres_database import redact_address

    return redact_address(str(location))


def open_store(
    location: str | Path,
    fingerprint: str | None,
    *,
    create: bool,
    readonly: bool,
    key: bytes | str | os.PathLike[str] | None = None,
) -> Store:
    """Open the store that ``location`` names, a file or ``postgresql://…``.

    Args:
        location: The file or address.
        fingerprint: The fingerprint of the model, stored in a new gallery.
        create: Whether to create a gallery that is missing.
        readonly: Refuse every change.
        key: Encrypts a new gallery and opens an encrypted one; see :func:`~.protection.read_key`.

    Raises:
        ValueError: If there is no such gallery, or the key does not fit.
    """
    from .protected_store import ProtectedStore
    from .protection import make_protection, open_protection, read_key

    secret = read_key(key)
    create = create and not readonly
    protection = make_protection(secret) if secret is not None and create else None
    store: Store
    if is_server(location):
        from .postgres_store import PostgresStore

        store = PostgresStore(str(location), fingerprint, create=create, readonly=readonly, protection=protection)
    else:
        from .sqlite_store import SQLiteStore

        store = SQLiteStore(location, fingerprint, create=create, readonly=readonly, protection=protection)
    try:
        found = open_protection(store.protection, secret, key is not None, store.location)
    except BaseException:
        store.close()
        raise
    return store if found is None else ProtectedStore(store, found)


def normalize_name(identity: str) -> str:
    r"""Return the name as it is stored and compared: in Unicode's composed form (NFC).

    >>> normalize_name("Jose\u0301") == normalize_name("Jos\u00e9")
    True
    """
    if not isinstance(identity, str) or not identity:
        raise ValueError(f"identity must be a name, got {'an empty string' if identity == '' else repr(identity)}")
    bad = next((c for c in identity if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp")), None)
    if bad is not None:
        raise ValueError(f"identity must be text without tabs, line breaks or broken characters, got {identity!r}")
    return unicodedata.normalize("NFC", identity)
