"""Synthetic images of four people, a network that separates them, and a client that needs no server."""

import asyncio
import io

import httpx
import numpy as np
import torch
from PIL import Image

from hypersphere.config import Call
from hypersphere.data import PicturePreprocessing
from hypersphere.models import mlp
from hypersphere.recognition import Embedder, Gallery
from hypersphere.recognition.service import create_app

HOSTILE = "<img src=x onerror=\"document.title='taken'\">"


def picture(person, shot=0, form="PNG", size=12):
    """Return an encoded image. People differ in their bright area, shots in noise. Person 3 resembles nobody."""
    pixels = np.random.default_rng(10 * person + shot).normal(40, 5, (12, 12))
    pixels[(person // 2) * 6 : (person // 2) * 6 + 6, (person % 2) * 6 : (person % 2) * 6 + 6] += 150
    pixels = 255 - pixels if person == 3 else pixels
    file = io.BytesIO()
    image = Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).resize((size, size), Image.Resampling.NEAREST)
    image.save(file, form)
    return file.getvalue()


def embedder(seed=1):
    call = Call(mlp, {"num_classes": None, "input_size": 12, "hidden": (128,), "activation": "none"})
    torch.manual_seed(seed)
    return Embedder(call.build(), PicturePreprocessing(size=(12, 12), channels=1), call)


def calibrate(path, model):
    """Store a threshold for a false accept rate that separates the same person from others."""
    with Gallery(path, model.fingerprint, create=False) as gallery:
        scores, same = torch.tensor([0.99, 0.9, 0.9] + 200 * [0.5]), torch.tensor([True] + 202 * [False])
        gallery.calibrate(far=1 / 201, pairs=(scores, same))


class Client:
    """Send requests to an application; every request has its own event loop."""

    def __init__(self, recognizer, keys=None, **options):
        self.app = create_app(recognizer, keys)
        self.options = options

    async def ask(self, method, path, **options):
        transport = httpx.ASGITransport(self.app, client=("127.0.0.1", 50000))
        settings = {"base_url": "http://127.0.0.1:8000", **self.options}
        async with httpx.AsyncClient(transport=transport, **settings) as client:
            return await client.request(method, path, **options)

    def get(self, path, **options):
        return asyncio.run(self.ask("GET", path, **options))

    def post(self, path, **options):
        return asyncio.run(self.ask("POST", path, **options))

    def delete(self, path, **options):
        return asyncio.run(self.ask("DELETE", path, **options))

    def enrol(self, name, *images):
        return self.post("/v1/persons", data={"name": name}, files=[("image", image) for image in images])

    def search(self, image, **data):
        return self.post("/v1/search", data=data, files={"image": image})


def refused(answer, status, code):
    """Check that a response is the expected error, and return its message."""
    assert (answer.status_code, set(answer.json())) == (status, {"error"}), answer.text
    error = answer.json()["error"]
    assert set(error) == {"code", "message", "request_id"}
    assert error["code"] == code, error
    assert error["request_id"] == answer.headers["x-request-id"]
    assert "Traceback" not in answer.text
    return error["message"]
