"""Fixtures: a recognizer on a new gallery, and a client for it."""

import pytest

pytest.importorskip("fastapi", reason="the service needs FastAPI: pip install 'torch-hypersphere[serve]'")

from hypersphere.recognition.service import Limits, Recognizer
from tests.recognition.service.people import Client, embedder


@pytest.fixture(scope="session")
def model():
    return embedder()


@pytest.fixture
def make_recognizer(tmp_path, model):
    """Return a function that builds recognizers with given limits. They are closed after the test."""
    made = []

    def make(path="people.db", embedder=model, **limits):
        made.append(Recognizer(embedder, tmp_path / path, Limits(**{"per_minute": 1e6, "burst": 10_000, **limits})))
        return made[-1]

    yield make
    for recognizer in made:
        recognizer.close()


@pytest.fixture
def client(make_recognizer):
    return Client(make_recognizer())
