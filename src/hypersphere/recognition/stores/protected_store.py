"""Encryption of any store: names and sources are encrypted, features are rotated."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from jaxtyping import Float
from torch import Tensor

from .protection import Protection
from .store import Cipher, CounterExample, Recall, Settings, Store, Templates


class ProtectedStore:
    """A :class:`Store` that encrypts everything before storing it in ``inner``, and decrypts everything read from there.

    Names, sources and counter-examples' sources are encrypted. Features are rotated, which changes no cosine, so that a
    server can search them without knowing the key. A gallery in a file also encrypts the rotated features.
    """

    def __init__(self, inner: Store, protection: Protection):
        self._inner, self._protection = inner, protection
        inner.cipher = protection
        self.location, self.fingerprint = inner.location, inner.fingerprint
        self.readonly, self.protection = inner.readonly, inner.protection
        self.cipher: Cipher | None = protection

    def settings(self) -> Settings:
        """Return the settings, which are not encrypted: counts, thresholds and the fingerprint of the model."""
        return self._inner.settings()

    def put(self, values: Mapping[str, str | None]) -> None:
        """Store settings in one transaction."""
        self._inner.put(values)

    def enrol(self, names: Sequence[str], features: Float[Tensor, "n d"], sources: Sequence[str]) -> list[int]:
        """Add rotated templates under encrypted names and sources."""
        return self._inner.enrol(
            [self._encrypt_name(name) for name in names],
            self._protection.rotate(features),
            [self._encrypt_source(source) for source in sources],
        )

    def remove(self, name: str) -> int | None:
        """Remove an identity."""
        return self._inner.remove(self._encrypt_name(name))

    def erase(self) -> list[str]:
        """Erase what removed rows left behind."""
        return self._inner.erase()

    def reject(self, name: str, features: Float[Tensor, "n d"], sources: Sequence[str]) -> bool:
        """Store counter-examples of an identity."""
        rotated = self._protection.rotate(features)
        return self._inner.reject(
            self._encrypt_name(name), rotated, [self._encrypt_source(source) for source in sources]
        )

    def counterexamples(self) -> list[CounterExample]:
        """Return all counter-examples."""
        return [
            CounterExample(
                self._decrypt_name(one.identity),
                self._decrypt_source(one.source),
                self._protection.rotate(one.feature[None], back=True)[0],
            )
            for one in self._inner.counterexamples()
        ]

    def counts(self, after: str = "", limit: int | None = None) -> dict[str, int]:
        """Return the number of templates of identities. All names are decrypted, because ciphertexts have no order."""
        found = sorted((self._decrypt_name(name), count) for name, count in self._inner.counts().items())
        return dict([one for one in found if one[0] > after][:limit])

    def features_of(self, name: str) -> Float[Tensor, "t d"] | None:
        """Return the templates of an identity, rotated back."""
        found = self._inner.features_of(self._encrypt_name(name))
        return None if found is None else self._protection.rotate(found, back=True)

    def templates(self) -> Templates:
        """Return all templates, rotated back."""
        found = self._inner.templates()
        return Templates(
            [self._decrypt_name(name) for name in found.identities],
            found.numbers,
            [self._decrypt_source(source) for source in found.sources],
            self._protection.rotate(found.features, back=True) if len(found.features) else found.features,
        )

    def nearest(self, probes: Float[Tensor, "p d"], k: int, approximate: bool = False) -> list[list[tuple[str, float]]]:
        """Search with rotated probes among rotated templates."""
        found = self._inner.nearest(self._protection.rotate(probes), k, approximate)
        return [[(self._decrypt_name(name), score) for name, score in row] for row in found]

    def build_index(self, k: int, probes: int) -> Recall:
        """Build an approximate index over the rotated templates."""
        return self._inner.build_index(k, probes)

    def check(self) -> list[str]:
        """Verify all checksums, and decrypt everything."""
        problems = self._inner.check()
        if not problems:
            try:
                self.templates()
                self.counterexamples()
            except OSError as error:
                problems.append(str(error))
        return problems

    def backup(self, target: Path) -> None:
        """Write a copy, which is encrypted with the same key."""
        self._inner.backup(target)

    def files(self) -> list[Path]:
        """Return the files of the store."""
        return self._inner.files()

    def close(self) -> None:
        """Close the inner store."""
        self._inner.close()

    def _encrypt_name(self, name: str) -> str:
        return self._protection.encrypt_text("name", name)

    def _decrypt_name(self, token: str) -> str:
        return self._protection.decrypt_text("name", token)

    def _encrypt_source(self, source: str) -> str:
        return self._protection.encrypt_text("source", source) if source else ""

    def _decrypt_source(self, token: str) -> str:
        return self._protection.decrypt_text("source", token) if token else ""
