"""Limits of the service per request and per client: bytes, pixels, time and rate."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Limits:
    """Limits per request and per client. A request that exceeds one is refused while it arrives.

    Args:
        body_bytes: Maximum size of the body of a request.
        images: Maximum number of images in a request.
        faces: Maximum number of faces in a photograph; the largest faces are recognized.
        pixels: Maximum number of pixels of an image, checked before it is decoded.
        recording_samples: Maximum number of samples of a recording, over all channels, checked before it is decoded. The
            default is 10 minutes at 48 kHz.
        decoding_seconds: Maximum time for decoding an image. Its decoder is stopped afterwards.
        sending_seconds: Maximum time for the head of a request to arrive, for its body to arrive, and for the client to
            read the answer.
        answer_seconds: Maximum time for computing features, and for finishing running requests when the service stops.
        per_minute: Requests per minute of one client, identified by its key or else by its address.
        burst: Requests that a client may send at once after a pause.
        at_once: Maximum number of requests processed at the same time; further requests get an error 503.
        connections: Maximum number of open connections of all clients; further ones are closed. The number is lower if
            the process may not open as many files.
        per_address: Maximum number of open connections from one address. A proxy in front of the service counts as one
            address.

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
            is_integer = field.type is int
            if not (isinstance(value, int | float) and 0 < value < math.inf) or (is_integer and value != int(value)):
                raise ValueError(f"limit {field.name} must be a positive {_name_type(is_integer)}, got {value!r}")

    @classmethod
    def from_words(cls, words: Sequence[str]) -> "Limits":
        """Return the default limits, changed by words ``name=value``."""
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
                    f"limit {name} must be a positive {_name_type(known[name] is int)}, got {value!r}"
                ) from error
        return cls(**changed)  # type: ignore[arg-type]


def _name_type(is_integer: bool) -> str:
    return "integer" if is_integer else "number"
