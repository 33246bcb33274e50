import pytest

from tests import processes
from tests.pool import Pool


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish():
    processes.stop()


@pytest.fixture(scope="session")
def pool():
    """Three processes, started once and shared by all tests that need them."""
    processes = Pool()
    yield processes
    processes.close()
