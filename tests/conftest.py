import pytest

from tests.pool import Pool


@pytest.fixture(scope="session")
def pool():
    """Three processes that are started once, for all tests that need some."""
    processes = Pool()
    yield processes
    processes.close()
