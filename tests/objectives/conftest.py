import pytest
import torch

from tests.pool import Pool


@pytest.fixture(autouse=True)
def _one_thread():
    """The matrices of these tests are small: a second thread would only wait for the first."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def pool():
    """Three processes that are started once, for all tests that need some."""
    processes = Pool()
    yield processes
    processes.close()
