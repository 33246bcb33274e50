"""Uploaded files as prepared images: named formats, a limit on pixels, and an error that names the file's place."""

import hashlib
import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from jaxtyping import UInt8
from torch import Tensor

from ..._extras import require
from ...data import CorruptDataError, Prepared, Preprocessing
from ...data.decoding_process import DecodingTimeoutError
from ...data.images import FORMATS, TooManyPixelsError, decode_image
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


def prepare(uploads: Sequence[Upload], preprocessing: Preprocessing, limits: Limits) -> list[UInt8[Tensor, "c h w"]]:
    """Return the 8-bit inputs of the network.

    Raises:
        RequestError: 415 for what is no image of a named format, 413 for too many pixels, 422 for a damaged one, one that takes
            too long to decode, or one that the preprocessing cannot use.

    >>> import io
    >>> from PIL import Image
    >>> file = io.BytesIO()
    >>> Image.new("L", (4, 4), 200).save(file, "PNG")
    >>> prepare([Upload("image", file.getvalue())], hs.data.PicturePreprocessing(size=(1, 1), channels=1), Limits())[0].tolist()
    [[[200]]]
    """
    return [_use(upload, limits, preprocessing.load) for upload in uploads]


class Photograph(NamedTuple):
    """What was found in an uploaded picture, and the size of the upright picture in pixels."""

    found: list[Prepared]
    width: int
    height: int


def find_all(upload: Upload, preprocessing: Preprocessing, limits: Limits) -> Photograph:
    """Return everything that a picture holds, such as all faces, largest first; nothing if there is none.

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
        lambda image: Photograph(preprocessing.load_all(image)[: limits.faces], image.width, image.height),
    )


def _use(upload: Upload, limits: Limits, work: Callable[[Any], T]) -> T:
    """Decode an upload and do some work with the picture; turn failures into HTTP errors."""
    pillow = require("PIL.Image")
    try:
        image = decode_image(
            upload.content, upload.field, None, max_pixels=limits.pixels, seconds=limits.decoding_seconds
        )
        return work(image)
    except CorruptDataError as error:
        reason = error.__cause__
        bombs = (TooManyPixelsError, pillow.DecompressionBombError, pillow.DecompressionBombWarning)
        if isinstance(reason, bombs):
            message = f"{upload.field} must have at most {limits.pixels} pixels"
            raise RequestError(413, "too_many_pixels", message) from error
        if isinstance(reason, DecodingTimeoutError):
            message = f"{upload.field} takes more than {limits.decoding_seconds:g} s to decode"
            raise RequestError(422, "too_expensive", message) from error
        if isinstance(reason, require("PIL").UnidentifiedImageError):
            message = f"what is sent as {upload.field} must be an image ({', '.join(FORMATS)})"
            raise RequestError(415, "not_an_image", f"{message}, got {len(upload.content)} other bytes") from error
        log.info("an upload does not decode: %s", error)
        raise RequestError(422, "damaged_image", f"{upload.field} is damaged: it does not decode to its end") from error
    except ValueError as error:
        raise RequestError(422, "unusable_image", f"{upload.field} cannot be used: {error}") from error
