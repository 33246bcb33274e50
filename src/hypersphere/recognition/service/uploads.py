"""Preparation of uploaded files: accepted formats, limits on size, and errors that name the form field."""

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
    """The bytes of one uploaded file and the name of its form field."""

    field: str
    content: bytes

    @property
    def source(self) -> str:
        """A name for the content, so that the same picture sent twice is enrolled once."""
        return f"sha256:{hashlib.sha256(self.content).hexdigest()}"


def prepare(uploads: Sequence[Upload], preprocessing: Preprocessing, limits: Limits) -> list[Tensor]:
    """Return the stored windows (k, …) of each upload.

    Raises:
        RequestError: 415 for an unknown format; 413 for too many pixels or samples; 422 for a file that is damaged, takes
            too long to decode, or cannot be used by the preprocessing.

    >>> import io
    >>> from PIL import Image
    >>> file = io.BytesIO()
    >>> Image.new("L", (4, 4), 200).save(file, "PNG")
    >>> prepare([Upload("image", file.getvalue())], hs.data.PicturePreprocessing(size=(1, 1), channels=1), Limits())[0].tolist()
    [[[[200]]]]
    """
    return [_decode_and_apply(upload, limits, preprocessing.load_windows) for upload in uploads]


class Photograph(NamedTuple):
    """The faces found in an uploaded photograph, and the size of the upright picture in pixels, 0 for a recording."""

    found: list[Prepared]
    width: int
    height: int


def find_all(upload: Upload, preprocessing: Preprocessing, limits: Limits) -> Photograph:
    """Return everything found in a sample, such as all faces, the largest first.

    Raises:
        RequestError: See :func:`prepare`.

    >>> import io
    >>> from PIL import Image
    >>> file = io.BytesIO()
    >>> Image.new("L", (4, 2), 200).save(file, "PNG")
    >>> preprocessing = hs.data.PicturePreprocessing(size=(1, 1), channels=1)
    >>> find_all(Upload("image", file.getvalue()), preprocessing, Limits())[1:]
    (4, 2)
    """
    return _decode_and_apply(
        upload,
        limits,
        lambda sample: Photograph(preprocessing.load_all(sample)[: limits.faces], *_get_picture_size(sample)),
    )


def _decode_and_apply(upload: Upload, limits: Limits, work: Callable[[Any], T]) -> T:
    """Decode an upload and apply ``work`` to the sample. Failures become HTTP errors."""
    try:
        return work(_decode_upload(upload, limits))
    except CorruptDataError as error:
        cause = error.__cause__
        if isinstance(cause, TooManySamplesError):
            message = f"{upload.field} must have at most {limits.recording_samples} samples"
            raise RequestError(413, "too_many_samples", message) from error
        if is_recording(upload.content):
            log.info("an upload does not decode: %s", error)
            message = f"{upload.field} is damaged: it does not decode to its end"
            raise RequestError(422, "damaged_recording", message) from error
        pillow = require("PIL.Image")
        bombs = (TooManyPixelsError, pillow.DecompressionBombError, pillow.DecompressionBombWarning)
        if isinstance(cause, bombs):
            message = f"{upload.field} must have at most {limits.pixels} pixels"
            raise RequestError(413, "too_many_pixels", message) from error
        if isinstance(cause, DecodingTimeoutError):
            message = f"{upload.field} takes more than {limits.decoding_seconds:g} s to decode"
            raise RequestError(422, "too_expensive", message) from error
        if isinstance(cause, require("PIL").UnidentifiedImageError):
            message = f"{upload.field} must be an image ({', '.join(FORMATS)}) or a recording (WAV, FLAC, Ogg, MP3)"
            raise RequestError(
                415, "not_an_image", f"{message}, got a file of {len(upload.content)} bytes in another format"
            ) from error
        log.info("an upload does not decode: %s", error)
        raise RequestError(422, "damaged_image", f"{upload.field} is damaged: it does not decode to its end") from error
    except ValueError as error:
        raise RequestError(422, "unusable_image", f"{upload.field} cannot be used: {error}") from error


def _decode_upload(upload: Upload, limits: Limits) -> Any:
    if is_recording(upload.content):
        return decode_recording(upload.content, upload.field, limits.recording_samples)
    return decode_image(upload.content, upload.field, None, max_pixels=limits.pixels, seconds=limits.decoding_seconds)


def _get_picture_size(sample: Any) -> tuple[int, int]:
    """Return width and height of a picture, 0 for a recording."""
    return (0, 0) if isinstance(sample, Recording) else (sample.width, sample.height)
