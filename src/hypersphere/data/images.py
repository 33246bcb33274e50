"""Decode image files from untrusted sources: named formats only, limits on bytes and pixels, one kind of error.

Every file becomes an upright 8-bit gray or RGB image. The EXIF orientation is applied. Palettes, CMYK and other color spaces
become RGB, and transparent pixels are blended with white. Gray values of more than 8 bits are scaled by the range that the file
declares (0 … 65535 for 16 bits). If a file declares none, as in 32-bit and float TIFF files, the smallest usual range that
contains the values is used: 0 … 1 (float only), 0 … 255, 0 … 65535, 0 … 2³² − 1 (integers only).
"""

import functools
import importlib.util
import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import UInt8

from .._extras import require
from .decoding_process import decode_in_process
from .errors import DataError, MissingDataError, make_corrupt_error

FORMATS = ("PNG", "JPEG", "MPO", "WEBP", "TIFF", "BMP", "GIF", "PPM", "JPEG2000", "AVIF", "QOI", "HEIF")
HEIF_ENDINGS = (".heic", ".heif", ".hif")  # photographs of iPhones and of some cameras
HAS_HEIF = importlib.util.find_spec("pillow_heif") is not None  # optional: Pillow alone cannot read them
IMAGE_ENDINGS = (
    *(".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".mpo", ".webp", ".tif", ".tiff", ".bmp", ".gif"),
    *(".ppm", ".pgm", ".pbm", ".pnm", ".jp2", ".j2k", ".avif", ".qoi"),
    *(HEIF_ENDINGS if HAS_HEIF else ()),
)
MAX_BYTES = 1 << 28  # of one encoded image
MAX_PIXELS = 89_478_485  # above this Pillow warns of a decompression bomb
MAX_SIDE = 65_535  # pixels of the longer side, the limit of JPEG; decoders spend time on every row, however short
MAX_JPEG_SCANS = 64  # encoders write about ten; the decoder passes over the whole image once per scan
MAX_DECODING_SECONDS = 30.0  # of one picture; a photograph of 89 million pixels takes about two
MAX_PIXELS_IN_PROCESS = 1 << 21  # pixels times scans; decoding them takes tenths of a second in the slowest format
MAX_BYTES_IN_PROCESS = 1 << 21  # JPEG 2000 takes a third of a second per million bytes
_INTEGER_RANGES = (255.0, 65535.0, 2.0**32 - 1)
_FLOAT_RANGES = (1.0, 255.0, 65535.0)
_ORIENTATION, _BITS, _SAMPLE_FORMAT = 0x0112, 258, 339  # tags of EXIF and TIFF


class TooManyPixelsError(ValueError):
    """Raised if an image declares more pixels, or a longer side, than may be decoded."""


def decode_image(
    content: bytes,
    where: str,
    mode: Literal["RGB", "L"] | None = "RGB",
    shape: tuple[int, int] | None = None,
    formats: Sequence[str] = FORMATS,
    max_pixels: int = MAX_PIXELS,
    seconds: float = MAX_DECODING_SECONDS,
) -> Any:
    """Return the upright 8-bit PIL image in ``content`` in ``mode``; None keeps gray images gray and converts others to RGB.

    Only ``formats`` are tried; PostScript files, for example, are never interpreted. The number of pixels, and ``shape`` =
    (height, width) if it is given, are checked before decoding. ``where`` is the name of the file in errors. A picture with many
    pixels, scans or bytes is decoded in another process, which is killed after ``seconds``.

    Raises:
        CorruptDataError: If decoding fails, with the decoder's reason.
    """
    expected = "a whole image" + (f" of {shape[0]}×{shape[1]} pixels" if shape else "") + f" ({', '.join(formats)})"
    try:
        if len(content) > MAX_BYTES:
            raise ValueError(f"more than {MAX_BYTES} bytes")
        image = require("PIL.Image").open(io.BytesIO(content), formats=_select_known(tuple(formats)))
        if shape is not None and image.size != shape[::-1]:
            raise ValueError(f"{image.height}×{image.width} pixels")
        if image.width * image.height > max_pixels:
            raise TooManyPixelsError(f"{image.height}×{image.width} pixels, more than {max_pixels}")
        if max(image.size) > MAX_SIDE:
            raise TooManyPixelsError(f"{image.height}×{image.width} pixels, a side longer than {MAX_SIDE}")
        if image.format in ("JPEG", "MPO") and content.count(b"\xff\xda") > MAX_JPEG_SCANS:  # the fast upper bound
            scans = count_jpeg_scans(content)
            if scans > MAX_JPEG_SCANS:
                raise ValueError(f"{scans} scans of a progressive JPEG, more than {MAX_JPEG_SCANS}")
        if _is_expensive(image, content):
            return decode_in_process(content, _select_known(tuple(formats)), mode, seconds)
        return _convert(image, mode)
    except ImportError:
        raise
    except Exception as error:  # a damaged image can raise any exception; its reason becomes part of the message
        reason = f"{type(error).__name__}: {error}".replace("\n", " ")
        if isinstance(error, require("PIL").UnidentifiedImageError):
            reason = "they are in no format of pictures"  # Pillow's message contains the address of a buffer
        raise make_corrupt_error(where, f"{len(content)} bytes that do not decode ({reason})", expected) from error


def explain_ending(ending: str) -> str:
    """Return what to install to read files with this ending, or an empty text if nothing would help.

    >>> explain_ending(".mp4")
    ''
    """
    missing = ending.lower() in HEIF_ENDINGS and not HAS_HEIF
    return "readable after pip install pillow-heif" if missing else ""


def is_expensive(content: bytes) -> bool:
    """Return whether :func:`decode_image` would decode these bytes in another process.

    Args:
        content: The bytes of a picture file.

    Returns:
        True for more than ``MAX_PIXELS_IN_PROCESS`` pixels times scans or more than ``MAX_BYTES_IN_PROCESS`` bytes; false for
        other bytes, also if they are not a picture.

    >>> is_expensive(b"text"), is_expensive(bytes(MAX_BYTES_IN_PROCESS + 1))
    (False, True)
    """
    if len(content) > MAX_BYTES_IN_PROCESS:
        return True
    try:
        image = require("PIL.Image").open(io.BytesIO(content), formats=_select_known(FORMATS))
        return _is_expensive(image, content)
    except ImportError:
        raise
    except Exception:  # a damaged header can raise any exception; decode_image reports it
        return False


def decode_in_this_process(content: bytes, formats: tuple[str, ...], mode: str | None) -> Any:
    """Decode an image in this process, without a time limit, after :func:`decode_image` has checked it."""
    return _convert(require("PIL.Image").open(io.BytesIO(content), formats=_select_known(formats)), mode)


def count_jpeg_scans(content: bytes) -> int:
    r"""Count the scans of the first JPEG image in ``content`` without decoding it.

    Segments are skipped by their lengths, so bytes inside a segment, such as a thumbnail, do not count. After a start-of-scan
    marker, the coded data extends to the next marker. In coded data, a byte 0xFF is followed by 0 or by a restart marker
    (0xD0 … 0xD7).

    >>> count_jpeg_scans(b"\xff\xd8" + b"\xff\xda\x00\x02coded\xff\x00" * 2 + b"\xff\xd9")
    2
    """
    position, scans = 2, 0
    while True:
        position = content.find(b"\xff", position)
        if position < 0 or position + 4 > len(content):
            return scans
        marker = content[position + 1]
        if marker in (0x00, 0xFF) or 0xD0 <= marker <= 0xD8:  # no marker, padding, or a marker without a segment
            position += 1 if marker == 0xFF else 2
            continue
        if marker == 0xD9:  # end of image
            return scans
        scans += marker == 0xDA
        position += 2 + int.from_bytes(content[position + 2 : position + 4], "big")


def read_image(path: str | os.PathLike[str]) -> Any:
    """Return the upright 8-bit PIL image in a file, in gray or RGB; see :func:`decode_image`.

    Raises:
        MissingDataError: If the file does not exist.
        CorruptDataError: If it is damaged, too large, or not of a known format.
    """
    return decode_image(read_bytes(path), str(path), None)


def read_bytes(path: str | os.PathLike[str], limit: int = MAX_BYTES) -> bytes:
    """Return the content of a file; refuse it if it is larger than ``limit`` bytes."""
    try:
        with open(path, "rb") as file:
            content = file.read(limit + 1)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise MissingDataError(f"there is no file {path}") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error
    if len(content) > limit:
        raise make_corrupt_error(Path(path), f"more than {limit} bytes", f"a file of at most {limit}")
    return content


def rotate_upright(image: Any) -> Any:
    """Return a PIL image rotated by its EXIF orientation."""
    methods = require("PIL.Image").Transpose
    turns = {
        2: methods.FLIP_LEFT_RIGHT,
        3: methods.ROTATE_180,
        4: methods.FLIP_TOP_BOTTOM,
        5: methods.TRANSPOSE,
        6: methods.ROTATE_270,
        7: methods.TRANSVERSE,
        8: methods.ROTATE_90,
    }
    turn = turns.get(image.getexif().get(_ORIENTATION, 1))
    if turn is None:
        return image
    rotated = image.transpose(turn)
    # Pillow copies the old orientation. Remove it, otherwise the image would be rotated again.
    rotated.info = {key: value for key, value in image.info.items() if key == "transparency"}
    rotated.format = image.format  # determines the range of the numbers
    return rotated


def convert_to_eight_bit(image: Any) -> Any:
    """Return a PIL image of any mode as "L" or "RGB", by the rules in the module docstring."""
    mode = image.mode
    if mode == "F" or mode.startswith("I"):
        values, tags = np.asarray(image), dict(getattr(image, "tag_v2", {}))
        if mode == "I" and tags.get(_SAMPLE_FORMAT, (0,))[0] == 1:
            values = values.view(np.uint32)  # Pillow keeps unsigned numbers of 32 bits as signed ones
        return require("PIL.Image").fromarray(_scale_to_eight_bit(values, _get_white_value(image), mode == "F"))
    if mode == "1":
        return image.convert("L")
    if mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        layer = image.convert("RGBA")
        white = require("PIL.Image").new("RGBA", layer.size, (255, 255, 255, 255))
        flat = require("PIL.Image").alpha_composite(white, layer).convert("RGB")
        return flat.convert("L") if mode in ("LA", "La", "L") else flat
    return image if mode in ("L", "RGB") else image.convert("RGB")


def to_array(image: Any) -> UInt8[np.ndarray, "c h w"]:
    """Return a PIL image as an array (channels, height, width)."""
    pixels = np.array(image)  # a copy: the image's own memory is not writable
    return pixels[None] if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1))


def crop_and_resize(image: Any, crop: int | None = None, size: int | None = None) -> Any:
    """Return the central ``crop``×``crop`` of a PIL image, resized to ``size``×``size`` (antialiased bilinear, integer arithmetic)."""
    if crop is not None:
        if not 1 <= crop <= min(image.size):
            raise ValueError(f"crop must lie in 1 … {min(image.size)}, got {crop}")
        left, top = (image.width - crop) // 2, (image.height - crop) // 2
        image = image.crop((left, top, left + crop, top + crop))
    if size is not None and image.size != (size, size):
        if size < 1:
            raise ValueError(f"size must be an integer ≥ 1, got {size}")
        image = image.resize((size, size), require("PIL.Image").Resampling.BILINEAR)
    return image


def _is_expensive(image: Any, content: bytes) -> bool:
    scans = content.count(b"\xff\xda") if image.format in ("JPEG", "MPO") else 1
    return image.width * image.height * max(1, scans) > MAX_PIXELS_IN_PROCESS or len(content) > MAX_BYTES_IN_PROCESS


def _convert(image: Any, mode: str | None) -> Any:
    image.load()
    image = convert_to_eight_bit(rotate_upright(image))
    return image if mode is None else image.convert(mode)


@functools.lru_cache
def _select_known(formats: tuple[str, ...]) -> tuple[str, ...]:
    """Return the formats that the installed Pillow supports."""
    module = require("PIL.Image")
    module.init()
    if HAS_HEIF:
        require("pillow_heif").register_heif_opener()
    return tuple(name for name in formats if name in module.OPEN)


def _get_white_value(image: Any) -> float | None:
    """Return the value of white that the file declares, or None."""
    if image.mode == "F":
        return None
    if image.format == "TIFF":
        bits = dict(getattr(image, "tag_v2", {})).get(_BITS, (16,))[0]
        return 2.0**bits - 1 if bits <= 16 else None
    return 65535.0 if image.mode.startswith("I;16") or image.format in ("PNG", "PPM", "JPEG2000") else None


def _scale_to_eight_bit(values: np.ndarray, top: float | None, floating: bool) -> UInt8[np.ndarray, "h w"]:
    numbers = values.astype(np.float64)
    low, high = float(numbers.min()), float(numbers.max())
    ranges = _FLOAT_RANGES if floating else _INTEGER_RANGES
    if top is None:
        top = next((limit for limit in ranges if high <= limit), None)
    if not low >= 0 or top is None or high > top:
        raise ValueError(f"gray values from {low:g} to {high:g}, not within 0 … {top or ranges[-1]:g}")
    return np.rint(numbers * (255 / top)).astype(np.uint8)
