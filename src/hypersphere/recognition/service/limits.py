"""How much a request may ask for: bytes, pixels, time, and how often."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Limits:
    """What one request, and one client, may take. What is beyond is refused while it arrives.

    Args:
        body_bytes: Of the whole body of a request.
        images: In one request.
        faces: In one photograph; the largest are recognized.
        pixels: Of one image, compared before any pixel is decoded.
        recording_samples: Of all channels of one recording, compared before it is decoded. The default is 10 minutes at 48 kHz.
        decoding_seconds: For decoding one image; its decoder is stopped afterwards.
        sending_seconds: In which the head of a request, and then its body, must have arrived, and in which the client must
            have read the answer.
        answer_seconds: In which features must be there; also what a stop waits for requests that were begun.
        per_minute: Requests of one client, by key or else by address.
        burst: Requests that a client who was quiet may make at once.
        at_once: Requests that are processed at the same time; further ones are answered with "try again later".
        connections: Open connections of all clients; more are closed at once. Fewer if the process may not open as many
            files.
        per_address: Open connections from one address. A proxy in front of the service counts as one address.

    >>> Limits.from_words(["pixels=1000000", "burst=5"]).pixels
    1000000
    """

    body_bytes: int = 16 << 20
    images: int = 16
    faces: int = 64
    pixels: int = 24_000_000
    recording_samples: int = 28_800_000
    decoding_seconds: float = 10.0
    sending_seconds: float = 15.0
    answer_seconds: float = 30.0
    per_minute: float = 600.0
    burst: int = 100
    at_once: int = 64
    connections: int = 512
    per_address: int = 48

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            whole = field.type is int
            if not (isinstance(value, int | float) and 0 < value < math.inf) or (whole and value != int(value)):
                raise ValueError(f"limit {field.name} must be a positive {_kind(whole)}, got {value!r}")

    @classmethod
    def from_words(cls, words: Sequence[str]) -> "Limits":
        """Return the defaults with some changed by ``name=value``."""
        known = {field.name: field.type for field in fields(cls)}
        changed: dict[str, float] = {}
        for word in words:
            name, _, value = word.partition("=")
            if name not in known:
                raise ValueError(f"a limit must be name=value with a name among {', '.join(known)}, got {word!r}")
            try:
                changed[name] = int(value) if known[name] is int else float(value)
            except ValueError as error:
                raise ValueError(
                    f"limit {name} must be a positive {_kind(known[name] is int)}, got {value!r}"
                ) from error
        return cls(**changed)  # type: ignore[arg-type]


def _kind(whole: bool) -> str:
    return "integer" if whole else "number"
