"""An engine on a new gallery, and a client of it."""

import pytest

pytest.importorskip("fastapi", reason="the service needs FastAPI: pip install 'torch-hypersphere[serve]'")

from hypersphere.recognition.service import Engine, Limits
from tests.recognition.service.people import Client, embedder


@pytest.fixture(scope="session")
def model():
    return embedder()


@pytest.fixture
def make_engine(tmp_path, model):
    """Builds engines with limits of one's own and closes them in the end."""
    made = []

    def make(path="people.db", embedder=model, **limits):
        made.append(Engine(embedder, tmp_path / path, Limits(**{"per_minute": 1e6, "burst": 10_000, **limits})))
        return made[-1]

    yield make
    for engine in made:
        engine.close()


@pytest.fixture
def client(make_engine):
    return Client(make_engine())
