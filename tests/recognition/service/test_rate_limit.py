import pytest

from hypersphere.recognition.service import rate_limit
from hypersphere.recognition.service.rate_limit import TokenBuckets


def test_a_bucket_fills_again():
    now = [100.0]
    buckets = TokenBuckets(per_minute=120, burst=3, clock=lambda: now[0])
    assert [buckets.take("a") for _ in range(4)] == [0, 0, 0, 0.5]
    assert buckets.take("b") == 0
    now[0] += 0.25
    assert buckets.take("a") == pytest.approx(0.25)
    now[0] += 0.25
    assert buckets.take("a") == 0
    now[0] += 1000
    assert [buckets.take("a") > 0 for _ in range(4)] == [False, False, False, True]


def test_the_memory_of_clients_is_bounded(monkeypatch):
    monkeypatch.setattr(rate_limit, "MAX_CLIENTS", 3)
    buckets = TokenBuckets(60, 1, clock=lambda: 0.0)
    assert [buckets.take(name) for name in "abcda"] == [0, 0, 0, 0, 0]  # the bucket of "a" was evicted
    assert buckets.take("d") == 1
    assert len(buckets._buckets) == 3
