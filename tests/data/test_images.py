import io
import sys
import types

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageFile

from hypersphere.data import CorruptDataError, MissingDataError, images
from hypersphere.data.images import (
    FORMATS,
    IMAGE_ENDINGS,
    MAX_JPEG_SCANS,
    convert_to_eight_bit,
    count_jpeg_scans,
    crop_and_resize,
    decode_image,
    read_bytes,
    read_image,
    rotate_upright,
    to_array,
)

from .files import encoded, random

RAMP = np.linspace(0, 1, 256).reshape(16, 16)
EIGHT = np.rint(RAMP * 255).astype(np.uint8)


def saved(image, kind, **options):
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def gray(content):
    return np.asarray(decode_image(content, "x", None))


@pytest.mark.parametrize(("pixels", "mode"), [(random(6, 5), "L"), (random(6, 5, 3), "RGB")])
def test_decoding_a_png_is_exact(pixels, mode):
    array = to_array(decode_image(encoded(pixels), "x.png", mode))
    assert np.array_equal(array, pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1))


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "TIFF", "BMP", "GIF", "PPM", "QOI"])
def test_the_named_formats_are_read(kind):
    image = decode_image(saved(Image.fromarray(random(8, 9, 3)), kind), "x", None)
    assert (image.mode, image.size) == ("RGB", (9, 8))


@pytest.mark.parametrize("kind", ["EPS", "ICO", "PDF", "TGA", "PCX"])
def test_other_formats_are_not_tried(kind):
    with pytest.raises(CorruptDataError, match=r"x\.jpg: found \d+ bytes that do not decode .*expected a whole image"):
        decode_image(saved(Image.fromarray(random(32, 32, 3)), kind), "x.jpg")


def test_postscript_never_reaches_its_plugin(monkeypatch):
    from PIL import EpsImagePlugin

    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *_, **__: pytest.fail("Ghostscript was called"))
    monkeypatch.setattr(EpsImagePlugin.EpsImageFile, "_open", lambda _: pytest.fail("the plugin was called"))
    with pytest.raises(CorruptDataError, match="do not decode"):
        decode_image(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n", "face.jpg")


def test_size_is_checked_before_decoding(monkeypatch):
    content = encoded(random(4, 5))
    monkeypatch.setattr(ImageFile.ImageFile, "load", lambda image: pytest.fail("decoded"))
    with pytest.raises(CorruptDataError, match=r"ValueError: 4×5 pixels.*expected a whole image of 5×4 pixels"):
        decode_image(content, "x.png", shape=(5, 4))
    with pytest.raises(CorruptDataError, match="4×5 pixels, more than 19"):
        decode_image(content, "x.png", max_pixels=19)


@pytest.mark.parametrize(
    "content",
    [
        saved(Image.fromarray(np.rint(RAMP * 65535).astype(np.uint16)), "PNG"),
        saved(Image.fromarray(np.rint(RAMP * 65535).astype(np.uint16)), "TIFF"),
        b"P5 16 16 65535\n" + np.rint(RAMP * 65535).astype(">u2").tobytes(),
        b"P5 16 16 1023\n" + np.rint(RAMP * 1023).astype(">u2").tobytes(),
        saved(Image.fromarray(np.rint(RAMP * 65535).astype(np.int32)), "TIFF"),
        saved(Image.fromarray(EIGHT.astype(np.int32)), "TIFF"),
        saved(Image.fromarray(RAMP.astype(np.float32)), "TIFF"),
        saved(Image.fromarray((RAMP * 255).astype(np.float32)), "TIFF"),
        saved(Image.fromarray((RAMP * 65535).astype(np.float32)), "TIFF"),
    ],
)
def test_deep_grays_are_scaled(content):
    assert np.abs(gray(content).astype(int) - EIGHT).max() <= (1 if b"1023" in content[:12] else 0)


def test_a_dark_deep_gray_stays_dark():
    """The range comes from the file format, not from the values."""
    assert gray(b"P5 2 1 65535\n" + np.array([257, 514], ">u2").tobytes()).tolist() == [[1, 2]]
    assert gray(saved(Image.fromarray(np.array([[257, 514]], np.uint16)), "PNG")).tolist() == [[1, 2]]


@pytest.mark.parametrize("value", [np.nan, -1.0, 1e9, np.inf])
def test_floats_without_a_range_are_refused(value):
    with pytest.raises(CorruptDataError, match="gray values from"):
        gray(saved(Image.fromarray(np.array([[0.5, value]], np.float32)), "TIFF"))


def test_every_mode_becomes_gray_or_rgb():
    color = Image.fromarray(random(8, 9, 3))
    assert np.array_equal(gray(saved(color.convert("CMYK"), "TIFF")), np.asarray(color))
    palette = color.quantize(16)
    assert np.array_equal(gray(saved(palette, "PNG")), np.asarray(palette.convert("RGB")))
    assert gray(saved(Image.fromarray(EIGHT).convert("1"), "PNG")).shape == (16, 16)
    assert convert_to_eight_bit(color.convert("HSV")).mode == "RGB"


def test_transparent_pixels_become_white():
    layer = np.zeros((1, 3, 4), np.uint8)
    layer[0, :, 3] = [0, 128, 255]
    assert gray(saved(Image.fromarray(layer), "PNG"))[0, :, 0].tolist() == [255, 127, 0]
    assert gray(saved(Image.fromarray(layer[..., [0, 3]]), "PNG")).tolist() == [[255, 127, 0]]
    palette = Image.new("P", (2, 1))
    palette.putpalette([10, 20, 30, 40, 50, 60])
    palette.putpixel((1, 0), 1)
    assert gray(saved(palette, "PNG", transparency=0)).tolist() == [[[255] * 3, [40, 50, 60]]]


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "WEBP"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation_is_applied(kind, orientation):
    corner = np.zeros((16, 24, 3), np.uint8)
    corner[:8, :8] = 255  # the top left of the stored picture
    exif = Image.Exif()
    exif[0x0112] = orientation
    image = decode_image(saved(Image.fromarray(corner), kind, exif=exif), "x", "L")
    assert image.size == ((24, 16) if orientation < 5 else (16, 24))
    place = {1: "tl", 2: "tr", 3: "br", 4: "bl", 5: "tl", 6: "tr", 7: "br", 8: "bl"}[orientation]
    pixels = np.asarray(image)
    rows, columns = pixels[:4] if place[0] == "t" else pixels[-4:], place[1]
    assert (rows[:, :4] if columns == "l" else rows[:, -4:]).min() > 200
    assert rotate_upright(image) is image


def test_a_damaged_tag_does_not_affect_the_orientation():
    exif = Image.Exif()
    exif[0x0112], exif[0x9286] = 6, "comment"
    assert decode_image(saved(Image.fromarray(random(4, 6, 3)), "PNG", exif=exif), "x").size == (4, 6)


@settings(max_examples=150)
@given(st.sampled_from(["PNG", "JPEG", "WEBP", "TIFF", "BMP", "GIF", "PPM", "QOI"]), st.data())
@pytest.mark.filterwarnings("ignore")
def test_damaged_bytes_give_an_image_or_one_kind_of_error(kind, data):
    content = bytearray(saved(Image.fromarray(random(8, 8, 3)), kind))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    kept = bytes(content[: data.draw(st.integers(1, len(content)))])
    try:
        assert decode_image(kept, "x", None, max_pixels=10**6).mode in ("L", "RGB")
    except CorruptDataError as error:
        assert str(error).startswith("x: found")  # noqa: PT017
        assert "\n" not in str(error)  # noqa: PT017


def test_reading_a_file(tmp_path):
    (tmp_path / "a.pgm").write_bytes(b"P5 2 1 255\n\x01\x02")
    assert np.asarray(read_image(tmp_path / "a.pgm")).tolist() == [[1, 2]]
    (tmp_path / "text.jpg").write_text("no image")
    with pytest.raises(
        CorruptDataError, match=r"text\.jpg: found 8 bytes that do not decode \(they are in no format of pictures\)"
    ):
        read_image(tmp_path / "text.jpg")
    with pytest.raises(MissingDataError, match=r"there is no file .*b\.png"):
        read_image(tmp_path / "b.png")
    with pytest.raises(ValueError, match=f"{tmp_path.name} cannot be read: Is a directory"):
        read_image(tmp_path)
    with pytest.raises(CorruptDataError, match="more than 4 bytes"):
        read_bytes(tmp_path / "text.jpg", limit=4)


def test_endings_belong_to_formats():
    Image.init()
    assert {Image.EXTENSION[ending] for ending in IMAGE_ENDINGS if ending in Image.EXTENSION} <= set(FORMATS)


def test_crops_the_center_then_resizes():
    pixels = random(9, 7)
    assert np.array_equal(np.asarray(crop_and_resize(Image.fromarray(pixels), crop=3)), pixels[3:6, 2:5])
    assert crop_and_resize(Image.fromarray(pixels), size=5).size == (5, 5)
    assert np.asarray(crop_and_resize(Image.fromarray(np.full((8, 8), 9, np.uint8)), 6, 3)).tolist() == [[9] * 3] * 3


@pytest.mark.parametrize(
    ("crop", "size", "message"),
    [(8, None, "crop must lie in 1 … 7, got 8"), (None, 0, "size must be an integer ≥ 1, got 0")],
)
def test_crop_and_resize_refuses(crop, size, message):
    with pytest.raises(ValueError, match=message):
        crop_and_resize(Image.fromarray(random(9, 7)), crop, size)


def progressive(scans, thumbnail=b""):
    """Return a progressive JPEG with one empty refinement scan per number, and with a comment that looks like scans."""
    content = saved(Image.fromarray(random(64, 64)), "JPEG", progressive=True)
    comment = b"\xff\xfe" + (len(thumbnail) + 2).to_bytes(2, "big") + thumbnail
    empty = b"\xff\xda\x00\x08\x01\x01\x00\x01\x3f\x10" + b"\x00" * 8
    return content[:2] + comment + content[2:-2] + empty * scans + b"\xff\xd9"


def test_scans_are_counted_before_decoding(monkeypatch):
    own = count_jpeg_scans(progressive(0))
    assert 2 <= own <= 12
    assert count_jpeg_scans(progressive(1500)) == own + 1500
    assert count_jpeg_scans(saved(Image.fromarray(random(64, 64, 3)), "JPEG")) == 1
    monkeypatch.setattr(ImageFile.ImageFile, "load", lambda image: pytest.fail("decoded"))
    with pytest.raises(CorruptDataError, match=f"{own + 1500} scans of a progressive JPEG, more than {MAX_JPEG_SCANS}"):
        decode_image(progressive(1500), "x.jpg")


def test_scans_in_a_comment_do_not_count():
    content = progressive(0, thumbnail=b"\xff\xda\x00\x02" * 200)
    assert content.count(b"\xff\xda") > MAX_JPEG_SCANS
    assert count_jpeg_scans(content) <= 12
    assert decode_image(content, "x.jpg").size == (64, 64)
    assert count_jpeg_scans(content[:40]) == 0


def test_a_long_side_is_refused_before_decoding(monkeypatch):
    content = saved(Image.new("1", (1, 65_536)), "PNG")
    monkeypatch.setattr(ImageFile.ImageFile, "load", lambda image: pytest.fail("decoded"))
    with pytest.raises(CorruptDataError, match="65536×1 pixels, a side longer than 65535"):
        decode_image(content, "x.png")


def test_heif_is_decoded_by_the_plugin_if_it_is_installed(monkeypatch):
    """The plugin is a substitute that registers a format under the name of pillow-heif."""
    plugin = types.ModuleType("pillow_heif")
    plugin.register_heif_opener = lambda: Image.register_open(
        "HEIF", lambda stream, name: Image.open(io.BytesIO(stream.read()[4:])), lambda start: start.startswith(b"heif")
    )
    monkeypatch.setitem(sys.modules, "pillow_heif", plugin)
    monkeypatch.setattr(images, "HAS_HEIF", True)
    images._select_known.cache_clear()
    pixels = random(6, 5, 3)
    try:
        found = decode_image(b"heif" + encoded(pixels), "x.heic")
        assert np.array_equal(np.asarray(found), pixels)
    finally:
        Image.OPEN.pop("HEIF", None)
        if "HEIF" in Image.ID:
            Image.ID.remove("HEIF")
        images._select_known.cache_clear()


@pytest.mark.skipif(not images.HAS_HEIF, reason="pillow-heif is not installed")
def test_heif_of_the_real_plugin():
    pillow_heif = pytest.importorskip("pillow_heif")
    pillow_heif.register_heif_opener()
    content = saved(Image.fromarray(np.full((64, 48, 3), 128, np.uint8)), "HEIF", quality=90)
    found = np.asarray(decode_image(content, "x.heic")).astype(int)
    assert found.shape == (64, 48, 3)
    assert abs(found - 128).max() <= 3
