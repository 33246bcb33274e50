"""Keys that callers show as ``Authorization: Bearer KEY``, held as digests and compared in constant time."""

import hashlib
import hmac
import os
import string
from collections.abc import Iterable
from pathlib import Path

VARIABLE = "HYPERSPHERE_KEYS"
MIN_KEY_LENGTH = 16  # characters
LETTERS = frozenset(string.ascii_letters + string.digits + "-._~+/=")  # those of a bearer token (RFC 6750)


class BearerKeys:
    """The keys that open a service; without any it is open.

    Args:
        keys: At least 16 letters, digits and ``-._~+/=`` each; ``openssl rand -hex 32`` makes one.

    >>> keys = BearerKeys(["correct-horse-battery"])
    >>> keys.owner("Bearer correct-horse-battery") is None, keys.owner("Bearer wrong") is None
    (False, True)
    """

    def __init__(self, keys: Iterable[str] = ()):
        self._digests = []
        for i, key in enumerate(keys):
            if len(key) < MIN_KEY_LENGTH or not LETTERS.issuperset(key):
                raise ValueError(
                    f"key {i + 1} must have at least {MIN_KEY_LENGTH} characters, letters, digits and -._~+/= only, "
                    f"got {len(key)} characters; `openssl rand -hex 32` makes one"
                )
            self._digests.append(_digest(key))

    @classmethod
    def read(cls, path: str | os.PathLike[str] | None = None) -> "BearerKeys":
        """Return the keys of a file, one per line, or of the variable HYPERSPHERE_KEYS, separated by spaces or commas.

        Lines that begin with ``#`` are remarks. A file without a key is a ``ValueError``, for the service would be open.
        """
        if path is None:
            return cls(os.environ.get(VARIABLE, "").replace(",", " ").split())
        try:
            lines = Path(path).read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError as error:
            raise ValueError(f"{path} must be a text file with one key a line") from error
        keys = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
        if not keys:
            raise ValueError(f"{path} must hold at least one key, one a line, got none")
        return cls(keys)

    def __bool__(self) -> bool:
        return bool(self._digests)

    def owner(self, authorization: str | None) -> str | None:
        """Return a name for the key that a header shows, by which its caller is counted; None if it is none of these."""
        scheme, _, key = (authorization or "").partition(" ")
        shown = _digest(key.strip())
        found = None
        for digest in self._digests:  # compare with all keys, so that the time reveals nothing
            if hmac.compare_digest(digest, shown):
                found = digest
        return f"key {found.hex()[:12]}" if found is not None and scheme.lower() == "bearer" else None


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
