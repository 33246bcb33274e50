"""Damaged and hostile pictures: each is decoded or refused with one kind of error, within limits of time and memory."""

import io
import random
import struct
import zlib
from collections.abc import Iterator
from typing import Any

from . import tally as rows
from .children import each
from .tally import Tally

COUNT = 20_400
BATCH = 100


def attack(scale: float) -> Iterator[Tally]:
    """Yield one tally."""
    import numpy  # noqa: F401
    import PIL.Image

    PIL.Image.init()
    if not rows.due("images", "fuzzed images"):
        return
    tally = Tally("images", "fuzzed images")
    seeds = _originals()
    tally.conditions = {"formats": sorted({name for name, _ in seeds}), "pillow": PIL.__version__}
    batches = [(start, min(BATCH, round(scale * COUNT) - start)) for start in range(0, round(scale * COUNT), BATCH)]

    def work(batch: tuple[int, int]) -> dict[str, Any]:
        return _many(batch, seeds)

    for batch, answer in each(batches, work):
        if "died" in answer:
            tally.broke(f"pictures {batch[0]} … of seed 61: the decoder's process died by {answer['died']}")
            continue
        for name, count in answer["held"].items():
            tally.held(name, count)
        for what in answer["broke"]:
            tally.broke(what)
    yield tally


def _many(batch: tuple[int, int], seeds: list[tuple[str, bytes]]) -> dict[str, Any]:
    from hypersphere.data.errors import CorruptDataError
    from hypersphere.data.images import decode_image

    held: dict[str, int] = {}
    broke = []
    for number in range(batch[0], batch[0] + batch[1]):
        draw = random.Random(610_000_000 + number)
        name, content = draw.choice(seeds)
        content = _damaged(draw, content)
        try:
            image = decode_image(content, "picture", max_pixels=1 << 22)
            outcome = "decoded" if image.mode == "RGB" and min(image.size) > 0 else "odd"
        except CorruptDataError:
            outcome = "refused"
        except BaseException as error:
            outcome = f"{type(error).__name__}: {error}"[:200]
        if outcome in ("decoded", "refused"):
            held[outcome] = held.get(outcome, 0) + 1
        else:
            broke.append(f"picture {number}, {name}: {outcome}")
    return {"held": held, "broke": broke}


def _damaged(draw: random.Random, content: bytes) -> bytes:
    raw = bytearray(content)
    roll = draw.random()
    if roll < 0.15:
        return bytes(raw[: draw.randrange(len(raw) + 1)])
    if roll < 0.2:
        return draw.randbytes(draw.randrange(200))
    if roll < 0.3:  # overwrite a possible length field with an extreme value
        at = draw.randrange(max(1, min(len(raw) - 4, 200)))
        raw[at : at + 4] = struct.pack(draw.choice("<>") + "I", draw.choice((0, 1, 2**31 - 1, 2**32 - 1, 65535, 10**6)))
        return bytes(raw)
    if roll < 0.4:
        at, size = draw.randrange(len(raw)), draw.randrange(1, 64)
        return bytes(raw[:at] + draw.randbytes(size) + raw[at:])
    if roll < 0.5:
        at = draw.randrange(len(raw))
        del raw[at : at + draw.randrange(1, 64)]
        return bytes(raw)
    first = draw.random() < 0.5  # headers have more effect than pixels
    for _ in range(draw.choice((1, 1, 2, 8, 40))):
        raw[draw.randrange(min(len(raw), 120) if first else len(raw))] ^= 1 << draw.randrange(8)
    return bytes(raw)


def _originals() -> list[tuple[str, bytes]]:
    """Return small pictures in every format and mode that Pillow can write, and files that only look like pictures."""
    import numpy as np
    from PIL import Image

    grey = np.random.default_rng(0).integers(0, 256, (12, 14), dtype=np.uint8)
    rgb = Image.fromarray(np.stack([grey, grey.T.repeat(2, 0)[:12, :14] if False else 255 - grey, grey // 2], -1))
    wide = Image.fromarray(grey.astype(np.uint16) * 257)
    modes = {
        "RGB": rgb,
        "L": Image.fromarray(grey),
        "P": rgb.convert("P"),
        "RGBA": rgb.convert("RGBA"),
        "1": rgb.convert("1"),
        "CMYK": rgb.convert("CMYK"),
        "I;16": wide,
        "F": Image.fromarray(grey.astype(np.float32)),
    }
    found = []
    for form in ("PNG", "JPEG", "WEBP", "TIFF", "BMP", "GIF", "PPM", "JPEG2000", "AVIF", "QOI"):
        for mode, image in modes.items():
            buffer = io.BytesIO()
            try:
                image.save(buffer, form)
            except (OSError, KeyError, ValueError):
                continue  # the format does not support the mode
            found.append((f"{form} {mode}", buffer.getvalue()))
    exif = Image.Exif()
    exif[0x0112] = 6
    buffer = io.BytesIO()
    rgb.save(buffer, "JPEG", exif=exif)
    found.append(("JPEG EXIF", buffer.getvalue()))
    found.append(("PostScript", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\nshowpage\n"))
    found.append(("bomb", _bomb()))
    return found


def _bomb() -> bytes:
    """Return a PNG of 60,000 × 60,000 pixels in a few kilobytes."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", 60_000, 60_000, 1, 0, 0, 0, 0)
    body = zlib.compress(bytes(1 << 16))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b"")
