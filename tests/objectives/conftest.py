import pytest
import torch


@pytest.fixture(autouse=True)
def _one_thread():
    """Use one thread, because the matrices of these tests are too small for more."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
