"""Rate limit per client by token buckets."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable

MAX_CLIENTS = 10_000  # the least recently active client is removed first


class TokenBuckets:
    """One bucket of tokens per client, full at first; each request takes one.

    Args:
        per_minute: Tokens added to a bucket per minute.
        burst: Capacity of a bucket.
        clock: Monotonic time in seconds.

    >>> buckets = TokenBuckets(per_minute=60, burst=2, clock=lambda: 0.0)
    >>> [buckets.take("ada") for _ in range(3)]
    [0.0, 0.0, 1.0]
    """

    def __init__(self, per_minute: float, burst: int, clock: Callable[[], float] = time.monotonic):
        self.rate, self.burst, self.clock = per_minute / 60, burst, clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, client: str) -> float:
        """Take a token and return 0, or return the seconds until there is one."""
        with self._lock:
            now = self.clock()
            tokens, since = self._buckets.pop(client, (float(self.burst), now))
            tokens = min(self.burst, tokens + (now - since) * self.rate)
            waiting = 0.0 if tokens >= 1 else (1 - tokens) / self.rate
            self._buckets[client] = (tokens if waiting else tokens - 1, now)
            if len(self._buckets) > MAX_CLIENTS:
                self._buckets.popitem(last=False)
            return waiting
