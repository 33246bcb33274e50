import threading
import time

import pytest

from hypersphere.data.prefetch import ahead


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_results_come_in_order(workers):
    assert list(ahead(lambda i: (time.sleep(0.002 * (5 - i)), i)[1], range(5), workers)) == list(range(5))


def test_an_error_comes_where_its_result_would_have():
    results = ahead(lambda i: 1 // (3 - i), range(6), 2)
    assert [next(results) for _ in range(3)] == [0, 0, 1]
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_work_is_done_before_it_is_asked_for_but_not_far():
    done = []
    results = ahead(done.append, range(100), 1)
    next(results)
    deadline = time.monotonic() + 5
    while len(done) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert 2 <= len(done) <= 3
    results.close()
    assert len(done) <= 4


def test_nothing_is_left_running():
    before = threading.active_count()
    results = ahead(lambda i: i, range(100), 4)
    next(results)
    results.close()
    assert threading.active_count() == before
