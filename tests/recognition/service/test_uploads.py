import io
import struct
import zlib

import pytest
from PIL import Image

from hypersphere.data import PicturePreprocessing
from hypersphere.recognition.service import Limits, RequestError
from hypersphere.recognition.service.uploads import Upload, prepare
from tests.data.test_decoding_process import many_scans

GREY = PicturePreprocessing(size=(4, 4), channels=1)


def encoded(form="PNG", size=(8, 8), mode="L"):
    file = io.BytesIO()
    Image.new(mode, size, 100).save(file, form)
    return file.getvalue()


def bomb(width, height):
    """A tiny PNG whose header declares many pixels."""
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    data = zlib.compress(b"\0")
    parts = [(b"IHDR", head), (b"IDAT", data), (b"IEND", b"")]
    chunk = b"".join(struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d)) for k, d in parts)
    return b"\x89PNG\r\n\x1a\n" + chunk


@pytest.mark.parametrize("form", ["PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM"])
def test_formats(form):
    (pixels,) = prepare([Upload("image", encoded(form))], GREY, Limits(pixels=64))
    assert pixels.shape == (1, 1, 4, 4)
    assert abs(pixels.float().mean() - 100) < 3


@pytest.mark.parametrize(
    ("content", "status", "code"),
    [
        (b"", 415, "not_an_image"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", 415, "not_an_image"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", 415, "not_an_image"),
        (encoded("ICO", (16, 16)), 415, "not_an_image"),
        (encoded(size=(9, 9)), 413, "too_many_pixels"),
        (bomb(60_000, 60_000), 413, "too_many_pixels"),
        (bomb(9_000, 11_000), 413, "too_many_pixels"),
        (encoded("JPEG")[:-200], 422, "damaged_image"),
        (encoded()[:-30], 422, "damaged_image"),
    ],
    ids=["nothing", "PostScript", "SVG", "ICO", "9×9", "bomb", "half a bomb", "half a JPEG", "half a PNG"],
)
def test_refuses(content, status, code):
    with pytest.raises(RequestError) as caught:
        prepare([Upload("image", encoded()), Upload("image 2", content)], GREY, Limits(pixels=64))
    assert (caught.value.status_code, caught.value.code) == (status, code)
    assert "image 2" in caught.value.detail
    assert "0x" not in caught.value.detail


def test_an_image_that_is_too_small_for_the_crop():
    with pytest.raises(RequestError) as caught:
        prepare(
            [Upload("image", encoded())], PicturePreprocessing(size=(4, 4), channels=1, crop=(0, 0, 20, 20)), Limits()
        )
    assert (caught.value.status_code, caught.value.code) == (422, "unusable_image")


def test_a_source_names_the_content():
    assert Upload("a", b"x").source == Upload("b", b"x").source != Upload("a", b"y").source


def test_a_small_file_that_takes_long_to_decode_is_refused_in_time():
    content = many_scans()
    with pytest.raises(RequestError) as caught:
        prepare([Upload("image", content)], GREY, Limits(decoding_seconds=0.2))
    assert (caught.value.status_code, caught.value.code) == (422, "too_expensive")
