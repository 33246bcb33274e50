import pytest

from tests import processes
from tests.pool import Pool


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish():
    processes.stop()


@pytest.fixture(scope="session")
def pool():
    """Three processes that are started once, for all tests that need some."""
    processes = Pool()
    yield processes
    processes.close()
