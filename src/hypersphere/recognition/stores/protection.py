"""Protection of galleries at rest: a key, encryption by AES-GCM, and a secret rotation of features."""

import base64
import hashlib
import hmac
import json
import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ..._extras import require
from ...files import write_atomically
from .store import DamagedGalleryError

KEY_VARIABLE = "HYPERSPHERE_GALLERY_KEY"
KEY_BYTES = 32
NONCE_BYTES, TAG_BYTES = 12, 16
SEAL_BYTES = NONCE_BYTES + TAG_BYTES  # added to a feature by encryption


class Protection:
    """Encryption and rotation with keys derived from one key and the random salt of a gallery.

    Names and sources are encrypted with a nonce computed from the text, so that equal texts have equal ciphertexts and
    can be looked up. Features are encrypted with random nonces. The rotation is a random orthogonal matrix: cosines
    stay the same up to rounding, and rotated features cannot be compared with those of another gallery.

    Args:
        key: The 32 bytes of the key.
        salt: The salt of the gallery, which is not secret.

    >>> protection = Protection(bytes(32), b"salt")
    >>> protection.decrypt_text("name", protection.encrypt_text("name", "Ada"))
    'Ada'
    """

    def __init__(self, key: bytes, salt: bytes):
        if len(key) != KEY_BYTES:
            raise ValueError(f"the key of a gallery must have {KEY_BYTES} bytes, got {len(key)}")
        self._key, self.salt = key, salt
        aead = require("cryptography.hazmat.primitives.ciphers.aead", "encryption")
        self._text, self._feature = (aead.AESGCM(self._derive(use)) for use in ("text", "feature"))
        self._nonce_key = self._derive("nonce")
        self._rotations: dict[int, Tensor] = {}

    @property
    def check_value(self) -> str:
        """A value to recognize the key by, which reveals nothing else about it."""
        return self._derive("check").hex()

    def encrypt_text(self, kind: str, text: str) -> str:
        """Return the ciphertext of a name or a source, the same for the same text."""
        plain = text.encode()
        nonce = hmac.digest(self._nonce_key, kind.encode() + b"\0" + plain, "sha256")[:NONCE_BYTES]
        return base64.urlsafe_b64encode(nonce + self._text.encrypt(nonce, plain, kind.encode())).decode()

    def decrypt_text(self, kind: str, text: str) -> str:
        """Return the text of a ciphertext, or raise a :class:`DamagedGalleryError` if it was changed."""
        try:
            sealed = base64.urlsafe_b64decode(text.encode())
            plain: bytes = self._text.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], kind.encode())
            return plain.decode()
        except Exception as error:  # InvalidTag has no base class of its own
            raise DamagedGalleryError(
                f"the gallery is damaged: a {kind} does not fit its authentication tag"
            ) from error

    def encrypt(self, plain: bytes, context: bytes) -> bytes:
        """Return nonce, ciphertext and tag of a feature, bound to its ``context``."""
        nonce = os.urandom(NONCE_BYTES)
        sealed: bytes = self._feature.encrypt(nonce, plain, context)
        return nonce + sealed

    def decrypt(self, sealed: bytes, context: bytes) -> bytes:
        """Return the bytes of a feature, or raise a :class:`DamagedGalleryError` if it was changed."""
        try:
            plain: bytes = self._feature.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], context)
        except Exception as error:
            raise DamagedGalleryError(
                "the gallery is damaged: a feature does not fit its authentication tag"
            ) from error
        return plain

    def rotate(self, features: Float[Tensor, "n d"], *, back: bool = False) -> Float[Tensor, "n d"]:
        """Rotate the features, or with ``back`` rotate them back, in float64."""
        matrix = self.rotation(features.shape[1])
        return (features.double() @ (matrix if back else matrix.T)).to(features.dtype)

    def rotation(self, dim: int) -> Float[Tensor, "d d"]:
        """Return the secret orthogonal matrix, uniformly distributed over all of them (Haar)."""
        if dim not in self._rotations:
            normal = torch.from_numpy(self._draw_normal(dim * dim).reshape(dim, dim))
            q, r = torch.linalg.qr(normal)
            # The signs of R are a choice of the factorization; fixing them makes Q unique and uniform.
            self._rotations[dim] = q * r.diagonal().sign()
        return self._rotations[dim]

    def _draw_normal(self, count: int) -> np.ndarray:
        """Return normal numbers from the key stream of ChaCha20, the same in every version of every library."""
        ciphers = require("cryptography.hazmat.primitives.ciphers", "encryption")
        stream = ciphers.Cipher(ciphers.algorithms.ChaCha20(self._derive("rotation"), bytes(16)), mode=None).encryptor()
        pairs = (count + 1) // 2
        words = np.frombuffer(stream.update(bytes(16 * pairs)), "<u8").reshape(2, pairs)
        uniform = ((words >> np.uint64(11)).astype(np.float64) + 0.5) / 2.0**53
        radius, angle = np.sqrt(-2 * np.log(uniform[0])), 2 * np.pi * uniform[1]
        return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:count]

    def _derive(self, use: str) -> bytes:
        # HKDF (RFC 5869) with SHA-256 and one block of output.
        extracted = hmac.digest(self.salt, self._key, hashlib.sha256)
        return hmac.digest(extracted, f"hypersphere gallery {use}".encode() + b"\x01", hashlib.sha256)


def make_protection(key: bytes) -> str:
    """Return the setting ``protection`` of a new gallery: a random salt, and a value to recognize the key by.

    >>> sorted(json.loads(make_protection(bytes(32))))
    ['check', 'salt']
    """
    salt = os.urandom(16)
    return json.dumps({"salt": salt.hex(), "check": Protection(key, salt).check_value})


def open_protection(setting: str | None, key: bytes | None, given: bool, location: str) -> Protection | None:
    """Return the protection of a gallery, None if it has none.

    Args:
        setting: The gallery's setting ``protection``.
        key: The key, if there is one.
        given: Whether the user gave the key for this gallery; False if it comes from the environment.
        location: The file or address of the gallery, for messages.

    Raises:
        ValueError: If the key is missing, is another one, or is given for a gallery that is not encrypted.
    """
    if setting is None:
        if given:
            raise ValueError(
                f"the gallery {location} is not encrypted, but a key was given: `hypersphere gallery rekey` writes an "
                "encrypted copy"
            )
        return None
    if key is None:
        raise ValueError(
            f"the gallery {location} is encrypted: give its key by --key-file or the environment variable {KEY_VARIABLE}"
        )
    try:
        values: dict[str, Any] = json.loads(setting)
        protection = Protection(key, bytes.fromhex(values["salt"]))
        known = str(values["check"])
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise DamagedGalleryError(f"the gallery {location} is damaged: its salt cannot be read") from error
    if not hmac.compare_digest(protection.check_value, known):
        raise ValueError(f"the key does not fit the gallery {location}")
    return protection


def read_key(key: bytes | str | os.PathLike[str] | None) -> bytes | None:
    """Return the bytes of a key from the argument, a file or the environment; None if there is no key.

    Args:
        key: 32 bytes, or the path of a file with 64 hexadecimal digits that only its owner can read. None reads the
            variable ``HYPERSPHERE_GALLERY_KEY``.

    Raises:
        ValueError: If the key has another form, or others can read its file.

    >>> read_key(bytes(32)) == bytes(32)
    True
    """
    if isinstance(key, bytes):
        return key
    if key is None:
        text = os.environ.get(KEY_VARIABLE)
        return None if not text else _parse_key(text, f"the environment variable {KEY_VARIABLE}")
    path = Path(key)
    if not path.is_file():
        raise ValueError(f"there is no key file {path}: `hypersphere gallery key {path}` creates one")
    if os.name == "posix" and stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise ValueError(f"the key file {path} can be read by others: chmod 600 {path}")
    return _parse_key(path.read_text(encoding="ascii", errors="replace"), f"the key file {path}")


def write_key(path: str | os.PathLike[str]) -> None:
    """Write a new random key to a file that only its owner can read. An existing file is never replaced.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_key(f"{folder}/people.key")
    ...     len(read_key(f"{folder}/people.key"))
    32
    """
    if Path(path).exists():
        raise ValueError(f"there is a file at {path} already; a key is never replaced")
    text = os.urandom(KEY_BYTES).hex() + "\n"
    write_atomically(path, lambda temporary: Path(temporary).write_text(text), private=True)


def _parse_key(text: str, where: str) -> bytes:
    try:
        key = bytes.fromhex(text.strip())
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise ValueError(
            f"{where} must contain {2 * KEY_BYTES} hexadecimal digits"
        )  # the message must not repeat the key
    return key
