"""Small files that are expensive to decode: each is decoded or refused within the time limit."""

import io
import random
import time
from collections.abc import Iterator

from . import tally as rows
from .tally import Tally

COUNT = 40
SECONDS, SLACK = 1.0, 5.0  # the limit, and the time to start a process on a busy machine


def attack(scale: float) -> Iterator[Tally]:
    """Yield one tally."""
    if not rows.due("expensive pictures", "small files, long decoding"):
        return
    from hypersphere.data.errors import CorruptDataError
    from hypersphere.data.images import decode_image

    tally = Tally("expensive pictures", "small files, long decoding")
    tally.conditions = {"limit": f"{SECONDS:g} s"}
    for number in range(max(1, round(scale * COUNT))):
        draw = random.Random(32_000 + number)
        name, content = _draw_picture(draw)
        start = time.monotonic()
        try:
            decode_image(content, name, seconds=SECONDS)
            outcome = "decoded"
        except CorruptDataError as error:
            outcome = "stopped" if "DecodingTimeoutError" in str(error) else "refused"
        took = time.monotonic() - start
        tally.check(took < SECONDS + SLACK, f"picture {number}, {name}, {len(content)} bytes: {took:.1f} s", outcome)
    yield tally


def many_scans(size: int, scans: int) -> bytes:
    """Return a small progressive JPEG with many scans; the decoder reads all pixels once per scan."""
    from PIL import Image

    file = io.BytesIO()
    Image.new("L", (size, size)).save(file, "JPEG", progressive=True)
    content = file.getvalue()
    last, end = content.rfind(b"\xff\xda"), content.rfind(b"\xff\xd9")
    return content[:last] + content[last:end] * scans + content[end:]


def _draw_picture(draw: random.Random) -> tuple[str, bytes]:
    from PIL import Image

    if draw.random() < 0.5:
        size, scans = draw.randrange(500, 6000), draw.choice((5, 20, 50, 59, 200, 1500))
        return f"JPEG of {scans} more scans, side {size}", many_scans(size, scans)
    form, mode = draw.choice((("PNG", "RGBA"), ("PNG", "1"), ("WEBP", "RGB"), ("GIF", "P"), ("TIFF", "RGB")))
    width = draw.choice((1, 100, 4000, 9000, 16_000))
    height = min(65_535, 36_000_000 // width) if form != "WEBP" else min(16_383, 36_000_000 // width)
    file = io.BytesIO()
    options = {"compression": "tiff_lzw"} if form == "TIFF" else {}
    Image.new(mode, (min(width, 16_383), height)).save(file, form, **options)
    return f"{form} {mode} of {width}×{height}", file.getvalue()
