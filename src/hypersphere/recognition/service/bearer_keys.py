"""Bearer keys: clients send ``Authorization: Bearer KEY``; the service stores digests and compares in constant time."""

import hashlib
import hmac
import os
import string
from collections.abc import Iterable
from pathlib import Path

VARIABLE = "HYPERSPHERE_KEYS"
MIN_KEY_LENGTH = 16  # characters
ALLOWED_CHARACTERS = frozenset(string.ascii_letters + string.digits + "-._~+/=")  # of a bearer token (RFC 6750)


class BearerKeys:
    """The accepted keys of a service. Without keys, the service is open to everybody on its machine.

    Args:
        keys: Each has at least 16 letters, digits and ``-._~+/=``; ``openssl rand -hex 32`` creates one.

    >>> keys = BearerKeys(["correct-horse-battery"])
    >>> keys.owner("Bearer correct-horse-battery") is None, keys.owner("Bearer wrong") is None
    (False, True)
    """

    def __init__(self, keys: Iterable[str] = ()):
        self._digests = []
        for i, key in enumerate(keys):
            if len(key) < MIN_KEY_LENGTH or not ALLOWED_CHARACTERS.issuperset(key):
                raise ValueError(
                    f"key {i + 1} must have at least {MIN_KEY_LENGTH} characters, only letters, digits and -._~+/=, "
                    f"got {len(key)} characters; `openssl rand -hex 32` creates one"
                )
            self._digests.append(_digest(key))

    @classmethod
    def read(cls, path: str | os.PathLike[str] | None = None) -> "BearerKeys":
        """Return the keys of a file, one per line, or of the variable HYPERSPHERE_KEYS, separated by spaces or commas.

        Lines that begin with ``#`` are comments.

        Raises:
            ValueError: If the file contains no key, because the service would be open.
        """
        if path is None:
            return cls(os.environ.get(VARIABLE, "").replace(",", " ").split())
        try:
            lines = Path(path).read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError as error:
            raise ValueError(f"{path} must be a text file with one key per line") from error
        keys = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
        if not keys:
            raise ValueError(f"{path} must contain at least one key, one per line, got none")
        return cls(keys)

    def __bool__(self) -> bool:
        return bool(self._digests)

    def owner(self, authorization: str | None) -> str | None:
        """Return a name for the key in a header, which identifies the client; None if the key is not accepted."""
        scheme, _, key = (authorization or "").partition(" ")
        received = _digest(key.strip())
        match = None
        for digest in self._digests:  # compare with all keys, so that the time reveals nothing
            if hmac.compare_digest(digest, received):
                match = digest
        return f"key {match.hex()[:12]}" if match is not None and scheme.lower() == "bearer" else None


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
