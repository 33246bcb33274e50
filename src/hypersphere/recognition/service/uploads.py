"""Uploaded files as prepared samples: named formats, limits on size, and an error that names the file's place."""

import hashlib
import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from torch import Tensor

from ..._extras import require
from ...data import CorruptDataError, Prepared, Preprocessing
from ...data.decoding_process import DecodingTimeoutError
from ...data.images import FORMATS, TooManyPixelsError, decode_image
from ...data.media import is_recording
from ...data.recordings import Recording, TooManySamplesError, decode_recording
from .errors import RequestError
from .limits import Limits

log = logging.getLogger("hypersphere.service")
T = TypeVar("T")


class Upload(NamedTuple):
    """The bytes of one uploaded file and the field of the form that it came in."""

    field: str
    content: bytes

    @property
    def source(self) -> str:
        """A name for the content, by which a picture that is sent twice is enrolled once."""
        return f"sha256:{hashlib.sha256(self.content).hexdigest()}"


def prepare(uploads: Sequence[Upload], preprocessing: Preprocessing, limits: Limits) -> list[Tensor]:
    """Return the stored windows (k, …) of each upload.

    Raises:
        RequestError: 415 for bytes of no named format, 413 for too many pixels or samples, 422 for a damaged file, one that takes
            too long to decode, or one that the preprocessing cannot use.

    >>> import io
    >>> from PIL import Image
    >>> file = io.BytesIO()
    >>> Image.new("L", (4, 4), 200).save(file, "PNG")
    >>> prepare([Upload("image", file.getvalue())], hs.data.PicturePreprocessing(size=(1, 1), channels=1), Limits())[0].tolist()
    [[[[200]]]]
    """
    return [_use(upload, limits, preprocessing.load_windows) for upload in uploads]


class Photograph(NamedTuple):
    """The finds in an uploaded sample, and the size of the upright picture in pixels; 0 for a recording."""

    found: list[Prepared]
    width: int
    height: int


def find_all(upload: Upload, preprocessing: Preprocessing, limits: Limits) -> Photograph:
    """Return everything that a sample holds, such as all faces, largest first; nothing if there is none.

    Raises:
        RequestError: As :func:`prepare`.

    >>> import io
    >>> from PIL import Image
    >>> file = io.BytesIO()
    >>> Image.new("L", (4, 2), 200).save(file, "PNG")
    >>> preprocessing = hs.data.PicturePreprocessing(size=(1, 1), channels=1)
    >>> find_all(Upload("image", file.getvalue()), preprocessing, Limits())[1:]
    (4, 2)
    """
    return _use(
        upload,
        limits,
        lambda sample: Photograph(preprocessing.load_all(sample)[: limits.faces], *_picture_size(sample)),
    )


def _use(upload: Upload, limits: Limits, work: Callable[[Any], T]) -> T:
    """Decode an upload and do some work with the picture; turn failures into HTTP errors."""
    try:
        return work(_decode(upload, limits))
    except CorruptDataError as error:
        reason = error.__cause__
        if isinstance(reason, TooManySamplesError):
            message = f"{upload.field} must have at most {limits.recording_samples} samples"
            raise RequestError(413, "too_many_samples", message) from error
        if is_recording(upload.content):
            log.info("an upload does not decode: %s", error)
            message = f"{upload.field} is damaged: it does not decode to its end"
            raise RequestError(422, "damaged_recording", message) from error
        pillow = require("PIL.Image")
        bombs = (TooManyPixelsError, pillow.DecompressionBombError, pillow.DecompressionBombWarning)
        if isinstance(reason, bombs):
            message = f"{upload.field} must have at most {limits.pixels} pixels"
            raise RequestError(413, "too_many_pixels", message) from error
        if isinstance(reason, DecodingTimeoutError):
            message = f"{upload.field} takes more than {limits.decoding_seconds:g} s to decode"
            raise RequestError(422, "too_expensive", message) from error
        if isinstance(reason, require("PIL").UnidentifiedImageError):
            message = f"what is sent as {upload.field} must be an image ({', '.join(FORMATS)}) or a recording (WAV, FLAC, Ogg, MP3)"
            raise RequestError(415, "not_an_image", f"{message}, got {len(upload.content)} other bytes") from error
        log.info("an upload does not decode: %s", error)
        raise RequestError(422, "damaged_image", f"{upload.field} is damaged: it does not decode to its end") from error
    except ValueError as error:
        raise RequestError(422, "unusable_image", f"{upload.field} cannot be used: {error}") from error


def _decode(upload: Upload, limits: Limits) -> Any:
    if is_recording(upload.content):
        return decode_recording(upload.content, upload.field, limits.recording_samples)
    return decode_image(upload.content, upload.field, None, max_pixels=limits.pixels, seconds=limits.decoding_seconds)


def _picture_size(sample: Any) -> tuple[int, int]:
    """Return width and height of a picture, 0 for a recording."""
    return (0, 0) if isinstance(sample, Recording) else (sample.width, sample.height)
