"""Uploaded files as prepared images: named formats, a limit on pixels, and a refusal that names the file's place."""

import hashlib
import logging
from collections.abc import Sequence
from typing import NamedTuple

from jaxtyping import UInt8
from torch import Tensor

from ..._extras import require
from ...data import CorruptDataError, Preprocessing
from ...data.images import TooManyPixelsError, decode
from .refusals import Refusal

log = logging.getLogger("hypersphere.service")
FORMATS = ("PNG", "JPEG", "MPO", "WEBP", "GIF", "BMP", "TIFF")  # what cameras, phones and browsers make


class Upload(NamedTuple):
    """The bytes of one uploaded file and the field of the form that it came in."""

    field: str
    content: bytes

    @property
    def source(self) -> str:
        """A name for the content, by which a picture that is sent twice is enrolled once."""
        return f"sha256:{hashlib.sha256(self.content).hexdigest()}"


def prepare(uploads: Sequence[Upload], preprocessing: Preprocessing, max_pixels: int) -> list[UInt8[Tensor, "c h w"]]:
    """Return the 8-bit inputs of the network.

    Raises:
        Refusal: 415 for what is no image of a named format, 413 for too many pixels, 422 for a damaged one or one that
            the preprocessing cannot use.

    >>> import io
    >>> from PIL import Image
    >>> file = io.BytesIO()
    >>> Image.new("L", (4, 4), 200).save(file, "PNG")
    >>> prepare([Upload("image", file.getvalue())], Preprocessing(size=(1, 1), channels=1), 16)[0].tolist()
    [[[200]]]
    """
    return [_prepared(upload, preprocessing, max_pixels) for upload in uploads]


def _prepared(upload: Upload, preprocessing: Preprocessing, max_pixels: int) -> UInt8[Tensor, "c h w"]:
    pillow = require("PIL.Image")
    try:
        image = decode(upload.content, upload.field, None, formats=FORMATS, max_pixels=max_pixels)
        return preprocessing.pixels(image)
    except CorruptDataError as error:
        reason = error.__cause__
        bombs = (TooManyPixelsError, pillow.DecompressionBombError, pillow.DecompressionBombWarning)
        if isinstance(reason, bombs):
            message = f"{upload.field} must have at most {max_pixels} pixels"
            raise Refusal(413, "too_many_pixels", message) from error
        if isinstance(reason, require("PIL").UnidentifiedImageError):
            message = f"what is sent as {upload.field} must be an image ({', '.join(FORMATS)})"
            raise Refusal(415, "not_an_image", f"{message}, got {len(upload.content)} other bytes") from error
        log.info("an upload does not decode: %s", error)
        raise Refusal(422, "damaged_image", f"{upload.field} is damaged: it does not decode to its end") from error
    except ValueError as error:
        raise Refusal(422, "unusable_image", f"{upload.field} cannot be used: {error}") from error
