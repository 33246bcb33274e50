"""Many small pictures in one image file. The page contains it once and shows parts of it."""

import base64
import io
import math

from jaxtyping import UInt8
from torch import Tensor

from .._extras import require
from .page_parts import Sheet

QUALITIES = (80, 60, 40, 25)


def make_sheet(images: UInt8[Tensor, "n h w channels"], budget: int) -> Sheet | None:
    """Return a sheet of at most ``budget`` bytes with the pictures row by row, or None if they do not fit.

    The first format that fits is used: PNG without loss, then WebP of decreasing quality, then the same at a half and a quarter
    of the size.

    >>> sheet = make_sheet(torch.zeros(5, 8, 6, 1, dtype=torch.uint8), 10_000)
    >>> sheet.columns, sheet.rows, sheet.width, sheet.height
    (3, 2, 6, 8)
    """
    picture = require("PIL.Image")
    count, height, width, channels = images.shape
    columns = max(1, math.ceil(math.sqrt(count * height / width)))
    rows = math.ceil(count / columns)
    canvas = images.new_zeros(rows * columns, height, width, channels)
    canvas[:count] = images
    whole = canvas.unflatten(0, (rows, columns)).transpose(1, 2).reshape(rows * height, columns * width, channels)
    image = picture.fromarray((whole[..., 0] if channels == 1 else whole).numpy())
    for shrink in (1, 2, 4):
        part = image if shrink == 1 else image.reduce(shrink)
        if max(part.size) > 16_000:  # WebP allows 16,383 pixels
            continue
        for kind, quality in [("PNG", 100), *(("WEBP", quality) for quality in QUALITIES)]:
            data = io.BytesIO()
            part.save(data, kind, optimize=True, quality=quality)
            if data.tell() * 4 / 3 <= budget:
                address = f"data:image/{kind.lower()};base64,{base64.b64encode(data.getvalue()).decode()}"
                return Sheet(address, columns, rows, width, height)
    return None
