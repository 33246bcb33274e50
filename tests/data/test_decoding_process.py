import io
import os
import time

import numpy as np
import pytest
from PIL import Image

from hypersphere.data import decoding_process, images
from hypersphere.data.decoding_process import DecodingFailedError, DecodingTimeoutError, decode_in_process
from hypersphere.data.errors import CorruptDataError


def encode(size, mode="RGB", kind="JPEG", **options):
    pixels = np.random.default_rng(0).integers(0, 256, (size, size, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(file, kind, **options)
    return file.getvalue()


def many_scans(scans=40, size=4096):
    """Return a progressive JPEG of few bytes and many scans; the decoder reads all pixels once per scan."""
    file = io.BytesIO()
    Image.new("L", (size, size)).save(file, "JPEG", progressive=True)
    content = file.getvalue()
    last, end = content.rfind(b"\xff\xda"), content.rfind(b"\xff\xd9")
    return content[:last] + content[last:end] * scans + content[end:]


@pytest.fixture(autouse=True)
def _no_workers_stay():
    yield
    decoding_process._close_all()


@pytest.mark.parametrize("mode", ["RGB", "L", None])
@pytest.mark.parametrize(("stored", "kind"), [("RGB", "JPEG"), ("L", "PNG"), ("RGBA", "PNG"), ("1", "PNG")])
def test_the_process_gives_the_same_pixels(mode, stored, kind):
    content = encode(40, stored, kind)
    here = images.decode_in_this_process(content, images.FORMATS, mode)
    there = decode_in_process(content, images.FORMATS, mode, 60)
    assert (there.mode, there.size, there.tobytes()) == (here.mode, here.size, here.tobytes())


def test_only_expensive_pictures_are_decoded_in_another_process(monkeypatch):
    sent = []
    monkeypatch.setattr(images, "decode_in_process", lambda content, *_: sent.append(len(content)))
    images.decode_image(encode(64), "small")
    assert not sent
    for content in (encode(1500), many_scans(10, 600), encode(1200, kind="BMP")):
        images.decode_image(content, "large")
    assert len(sent) == 3


def test_a_picture_that_takes_too_long_is_refused_and_its_process_killed():
    content = many_scans()
    assert len(content) < 100_000
    start = time.monotonic()
    with pytest.raises(CorruptDataError, match=r"DecodingTimeoutError: decoding took more than 0.2 s") as caught:
        images.decode_image(content, "bomb.jpg", seconds=0.2)
    assert time.monotonic() - start < 20
    assert isinstance(caught.value.__cause__, DecodingTimeoutError)
    assert not decoding_process._idle
    assert decode_in_process(encode(16), images.FORMATS, "L", 60).size == (16, 16)  # by a new worker


def test_a_dead_worker_gives_one_error():
    worker = decoding_process._take_worker()
    decoding_process._give_back(worker)
    worker.process.kill()
    worker.process.wait()
    with pytest.raises(DecodingFailedError, match="the decoder's process ended"):
        decode_in_process(encode(16), images.FORMATS, "L", 60)
    assert decode_in_process(encode(16), images.FORMATS, "L", 60).size == (16, 16)


def test_a_damaged_picture_is_named_and_the_worker_is_reused():
    content = encode(1500)
    with pytest.raises(CorruptDataError, match=r"cut\.jpg: .*truncated"):
        images.decode_image(content[: len(content) // 2], "cut.jpg")
    (worker,) = decoding_process._idle
    images.decode_image(content, "whole.jpg")
    assert decoding_process._idle == [worker]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_does_not_use_the_workers_of_its_parent():
    decode_in_process(encode(16), images.FORMATS, "L", 60)
    assert decoding_process._idle
    child = os.fork()
    if child == 0:
        decoding_process._forget_after_fork()
        os._exit(len(decoding_process._idle))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert decode_in_process(encode(16), images.FORMATS, "L", 60).size == (16, 16)


def test_which_pictures_are_expensive():
    small, large, scans = encode(40), encode(1500), many_scans(40, 256)
    assert [images.is_expensive(content) for content in (small, large, scans, b"", b"text")] == [
        False,
        True,
        True,
        False,
        False,
    ]
