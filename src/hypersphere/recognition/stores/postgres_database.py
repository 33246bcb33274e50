"""The database of a gallery on PostgreSQL: how it is made and reached, and errors that name the server but no password."""

import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urldefrag, urlsplit, urlunsplit

import numpy as np

from ..._extras import require

VERSION = "1"
DEFAULT = "hypersphere"  # the schema of a gallery whose address names none

SCHEMA = """
CREATE SCHEMA IF NOT EXISTS {schema};
CREATE TABLE {schema}.meta (key text PRIMARY KEY, value text);
CREATE TABLE {schema}.identities (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text COLLATE "C" NOT NULL UNIQUE
);
CREATE TABLE {schema}.templates (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  identity bigint NOT NULL REFERENCES {schema}.identities(id) ON DELETE CASCADE,
  source text NOT NULL,
  checksum bigint NOT NULL,
  feature vector NOT NULL
);
CREATE INDEX ON {schema}.templates (identity);
CREATE UNIQUE INDEX ON {schema}.templates (identity, source) WHERE source <> ''
"""


def split_address(address: str) -> tuple[str, str]:
    """Return what the server is reached by, and the gallery's schema, which stands behind ``#``.

    >>> split_address("postgresql://host/faces#staff")
    ('postgresql://host/faces', 'staff')
    """
    url, name = urldefrag(address)
    name = name or DEFAULT
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", name):
        raise ValueError(f"a gallery's name behind # must be small letters, digits and _, got {name!r}")
    return url, name


def shown(address: str) -> str:
    """Return the address without its password.

    >>> shown("postgresql://ada:secret@host/faces")
    'postgresql://ada@host/faces'
    """
    parts = urlsplit(address)
    query = re.sub(r"(^|&)password=[^&]*", "", parts.query)
    host = parts.netloc
    if "@" in host:
        user, _, place = host.rpartition("@")
        host = f"{user.partition(':')[0]}@{place}"
    return urlunsplit(parts._replace(netloc=host, query=query))


def connect(address: str, fingerprint: str | None, *, create: bool, readonly: bool) -> Any:
    """Return a connection whose transactions are explicit; a gallery that is missing is made if ``create``."""
    url, schema = split_address(address)
    psycopg = require("psycopg", "postgres")
    require("pgvector", "postgres")
    with failing_clearly(address):
        db = psycopg.connect(url, autocommit=True, connect_timeout=10, prepare_threshold=None)
        try:
            if not _exists(db, schema):
                if not create:
                    raise ValueError(f"there is no gallery at {shown(address)}")
                _make(db, schema, fingerprint)
            found = db.execute(f"SELECT value FROM {schema}.meta WHERE key = 'version'").fetchone()
            if found is None or found[0] != VERSION:
                was = "none" if found is None else found[0]
                raise ValueError(
                    f"{shown(address)} is a gallery of version {was}; this release reads version {VERSION}"
                )
            db.read_only = readonly or None
            require("pgvector.psycopg", "postgres").register_vector(db)
        except BaseException:
            db.close()
            raise
    return db


@contextmanager
def failing_clearly(address: str) -> Iterator[None]:
    """An error of the server is an ``OSError`` of one line."""
    psycopg = require("psycopg", "postgres")
    try:
        yield
    except psycopg.Error as error:
        text = " ".join(str(error).split()) or type(error).__name__
        raise OSError(f"the gallery {shown(address)} cannot be used: {text}") from error


def feature_seal(source: str, feature: np.ndarray) -> int:
    """Return the checksum of a template's row."""
    return zlib.crc32(np.ascontiguousarray(feature, dtype="<f4").tobytes(), zlib.crc32(source.encode()))


def _exists(db: Any, schema: str) -> bool:
    # A query on the catalogue, not to_regclass, which may answer from what this connection remembers.
    query = "SELECT count(*) FROM pg_catalog.pg_tables WHERE schemaname = %s AND tablename = 'meta'"
    return bool(db.execute(query, (schema,)).fetchone()[0])


def _make(db: Any, schema: str, fingerprint: str | None) -> None:
    with db.transaction():
        # Of two that make it the second waits here, and then finds it made.
        db.execute("SELECT pg_advisory_xact_lock(hashtext('hypersphere galleries'))")
        if _exists(db, schema):
            return
        if not db.execute("SELECT count(*) FROM pg_catalog.pg_extension WHERE extname = 'vector'").fetchone()[0]:
            db.execute("CREATE EXTENSION vector")
        for statement in SCHEMA.format(schema=schema).split(";"):
            db.execute(statement)
        rows = [("version", VERSION), ("fingerprint", fingerprint)]
        db.cursor().executemany(f"INSERT INTO {schema}.meta VALUES (%s, %s)", rows)
