import asyncio
import io
import threading
from dataclasses import replace

import pytest
import torch
from PIL import Image

from hypersphere.recognition import Embedder
from hypersphere.recognition.service import RequestError
from hypersphere.recognition.service.uploads import Upload
from tests.recognition.service.people import Client, picture, refused


def test_features_come_in_the_order_of_the_uploads(make_recognizer, model):
    recognizer = make_recognizer()
    uploads = [Upload("image", picture(i)) for i in range(4)]
    found = asyncio.run(recognizer.features(uploads))
    for i in range(4):
        torch.testing.assert_close(found[i : i + 1], asyncio.run(recognizer.features(uploads[i : i + 1])))


def test_what_takes_too_long_is_given_up(make_recognizer, model):
    recognizer = make_recognizer(answer_seconds=0.1)
    go = threading.Event()
    recognizer.batcher.embed = lambda pixels: (go.wait(30), model(pixels))[1]
    answer = Client(recognizer).search(picture(0))
    assert "within 0.1 s" in refused(answer, 503, "timeout")
    assert answer.headers["retry-after"] == "5"
    go.set()


def test_the_number_of_images_is_limited(make_recognizer):
    recognizer = make_recognizer(images=2)
    for count, status in ((0, 422), (3, 413)):
        with pytest.raises(RequestError, match="1 to 2 images") as caught:
            asyncio.run(recognizer.features([Upload("image", picture(0))] * count))
        assert caught.value.status_code == status


def test_a_change_ends_though_nobody_waits(make_recognizer):
    recognizer = make_recognizer()
    go, done = threading.Event(), threading.Event()

    async def impatient():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(recognizer.change_gallery(lambda: (go.wait(30), done.set())), 0.05)

    asyncio.run(impatient())
    go.set()
    recognizer.close()
    assert done.is_set()
    recognizer.close()


def test_warming_up_calls_the_network_once_whatever_its_preprocessing(make_recognizer, model):
    for crop in (None, (0, 0, 300, 300)):
        odd = Embedder(model.network, replace(model.preprocessing, crop=crop), model.call)
        recognizer = make_recognizer(embedder=odd)
        seen = []
        recognizer.batcher.embed = lambda samples, seen=seen, odd=odd: (
            seen.append(tuple(samples[0].shape)) or odd.of_windows(samples)
        )
        recognizer.warm_up()
        assert seen == [(1, 1, 12, 12)]


def test_a_change_that_takes_too_long_is_uncertain(make_recognizer):
    recognizer = make_recognizer(answer_seconds=0.05)
    go = threading.Event()
    with pytest.raises(RequestError, match="send the request again") as caught:
        asyncio.run(recognizer.change_gallery(lambda: go.wait(30)))
    assert (caught.value.status_code, caught.value.code) == (503, "uncertain")
    go.set()


def test_expensive_pictures_do_not_delay_small_ones(make_recognizer, monkeypatch):
    """Two expensive uploads used to occupy both decoders, so all other requests waited until these were killed."""
    from hypersphere.recognition.service import recognizer as module

    recognizer = make_recognizer()
    go, bomb = threading.Event(), many_scans()
    decode = module.prepare
    monkeypatch.setattr(
        module,
        "prepare",
        lambda uploads, *rest: ((uploads[0].content is bomb) and go.wait(30), decode(uploads, *rest))[1],
    )

    async def mix():
        slow = [asyncio.ensure_future(recognizer.features([Upload("image", bomb)])) for _ in range(4)]
        await asyncio.sleep(0.05)
        small = await asyncio.wait_for(recognizer.features([Upload("image", picture(0))]), 10)
        go.set()
        await asyncio.gather(*slow, return_exceptions=True)
        return small

    assert asyncio.run(mix()).shape[0] == 1


def many_scans():
    """A progressive JPEG with many passes over few pixels."""
    file = io.BytesIO()
    Image.new("L", (512, 512)).save(file, "JPEG", progressive=True)
    content = file.getvalue()
    last, end = content.rfind(b"\xff\xda"), content.rfind(b"\xff\xd9")
    return content[:last] + content[last:end] * 20 + content[end:]
