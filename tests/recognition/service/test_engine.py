import asyncio
import threading
from dataclasses import replace

import pytest
import torch

from hypersphere.recognition import Embedder
from hypersphere.recognition.service import Refusal
from hypersphere.recognition.service.uploads import Upload
from tests.recognition.service.people import Client, picture, refused


def test_features_come_in_the_order_of_the_uploads(make_engine, model):
    engine = make_engine()
    uploads = [Upload("image", picture(i)) for i in range(4)]
    found = asyncio.run(engine.features(uploads))
    for i in range(4):
        torch.testing.assert_close(found[i : i + 1], asyncio.run(engine.features(uploads[i : i + 1])))


def test_what_takes_too_long_is_given_up(make_engine, model):
    engine = make_engine(answer_seconds=0.1)
    go = threading.Event()
    engine.batcher.embed = lambda pixels: (go.wait(30), model(pixels))[1]
    answer = Client(engine).search(picture(0))
    assert "within 0.1 s" in refused(answer, 503, "timeout")
    assert answer.headers["retry-after"] == "5"
    go.set()


def test_the_number_of_images_is_limited(make_engine):
    engine = make_engine(images=2)
    for count, status in ((0, 422), (3, 413)):
        with pytest.raises(Refusal, match="1 to 2 images") as caught:
            asyncio.run(engine.features([Upload("image", picture(0))] * count))
        assert caught.value.status_code == status


def test_work_at_the_desk_ends_though_nobody_waits(make_engine):
    engine = make_engine()
    go, done = threading.Event(), threading.Event()

    async def impatient():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(engine.at_desk(lambda: (go.wait(30), done.set())), 0.05)

    asyncio.run(impatient())
    go.set()
    engine.close()
    assert done.is_set()
    engine.close()


def test_warming_up_calls_the_network_once_whatever_its_preprocessing(make_engine, model):
    for crop in (None, (0, 0, 300, 300)):
        odd = Embedder(model.network, replace(model.preprocessing, crop=crop), model.call)
        engine = make_engine(embedder=odd)
        seen = []
        engine.batcher.embed = lambda pixels, seen=seen, odd=odd: seen.append(tuple(pixels.shape)) or odd(pixels)
        engine.warm_up()
        assert seen == [(1, 1, 12, 12)]
