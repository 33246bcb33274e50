"""Results of a gallery's methods: matches, identifications, rejections, erasures and figures."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from .calibration import Calibration


class Match(NamedTuple):
    """An identity, the score of its best template, and whether that score reaches the threshold.

    ``probability`` is the probability that the probe shows this identity, if half of all probes show enrolled people. It
    is None if the gallery was calibrated without several pictures of the same person.

    >>> Match("ada", 0.93, accepted=True).identity
    'ada'
    """

    identity: str
    score: float
    accepted: bool
    probability: float | None = None


class Identification(NamedTuple):
    """The answer to "who is this?" for one probe: its candidates, best first.

    >>> answer = Identification((Match("ada", 0.93, True), Match("bob", 0.41, False)))
    >>> answer.name, answer.accepted, answer.best.score
    ('ada', True, 0.93)
    >>> Identification((Match("bob", 0.41, False),)).name is None  # a stranger
    True
    """

    candidates: tuple[Match, ...]
    info: Mapping[str, Any] = MappingProxyType({})
    """information about the probe: for a face its ``box``, ``landmarks``, detector ``score`` and ``quality``"""
    source: str = ""
    """path of the picture that contains the probe, empty if unknown"""

    @property
    def best(self) -> Match:
        """The candidate with the highest score, accepted or not."""
        return self.candidates[0]

    @property
    def accepted(self) -> bool:
        """Whether the best candidate reaches the threshold."""
        return self.best.accepted

    @property
    def name(self) -> str | None:
        """The name of the best candidate if it is accepted; None for a stranger."""
        return self.best.identity if self.accepted else None


class Rejection(NamedTuple):
    """The effect of counter-examples, stored by :meth:`Gallery.reject`.

    Attributes:
        identity: The identity that the pictures do not show.
        before: The match of each picture before it was stored, judged by ``threshold``.
        after: The match of each picture now.
        threshold: The threshold of :meth:`Gallery.identify`, None if the gallery is not calibrated.
        templates: The number of templates of the identity that were compared with its other templates.
        own_before: How many of these templates reached the threshold before.
        own_after: How many of them reach it now. If there are fewer, the person is recognized less often.
        expected_fpir: The share of strangers that the calibrated threshold is expected to accept, None if not calibrated.
            Counter-examples only lower scores, so it is an upper bound.

    >>> with hs.recognition.Gallery(":memory:") as gallery:
    ...     _ = gallery.enrol("ada", torch.eye(3)[:2])
    ...     gallery.reject("ada", torch.ones(3)).templates
    2
    """

    identity: str
    before: tuple[Match, ...]
    after: tuple[Match, ...]
    threshold: float | None
    templates: int
    own_before: int
    own_after: int
    expected_fpir: float | None


class Forgotten(NamedTuple):
    """The result of :meth:`Gallery.forget`.

    Attributes:
        identity: The name.
        templates: The number of erased templates.
        remaining: Places that the gallery cannot erase, such as a server's archives.
        backups: Copies made with this gallery that still contain the identity or cannot be read.

    >>> with hs.recognition.Gallery(":memory:") as gallery:
    ...     _ = gallery.enrol("ada", torch.eye(3))
    ...     gallery.forget("ada").templates
    3
    """

    identity: str
    templates: int
    remaining: tuple[str, ...]
    backups: tuple[str, ...]


class GalleryInfo(NamedTuple):
    """Figures of a gallery, returned by :meth:`Gallery.info`.

    Attributes:
        path: The file, or the address of the server.
        identities: The number of people.
        templates: The number of templates.
        dim: The dimension of the features, None if the gallery is empty.
        fingerprint: The fingerprint of the model.
        counterexamples: The number of stored counter-examples.
        encrypted: Whether it is encrypted.
        megabytes: The size of its files, None on a server.
        calibrations: The stored thresholds.
        backups: Copies that were made of it.

    >>> with hs.recognition.Gallery(":memory:") as gallery:
    ...     gallery.info().encrypted
    False
    """

    path: str
    identities: int
    templates: int
    dim: int | None
    fingerprint: str | None
    counterexamples: int
    encrypted: bool
    megabytes: float | None
    calibrations: Sequence[Calibration]
    backups: Sequence[str]
