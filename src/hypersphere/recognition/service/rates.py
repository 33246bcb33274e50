"""How often a client may ask: a bucket of tokens that fills again at a steady rate."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable

CLIENTS = 10_000  # remembered; the one that was quiet the longest is forgotten first


class TokenBuckets:
    """One bucket for each client, full at first.

    Args:
        per_minute: Tokens that flow into a bucket in a minute.
        burst: Tokens that a bucket holds.
        clock: Seconds that only grow.

    >>> buckets = TokenBuckets(per_minute=60, burst=2, clock=lambda: 0.0)
    >>> [buckets.take("ada") for _ in range(3)]
    [0.0, 0.0, 1.0]
    """

    def __init__(self, per_minute: float, burst: int, clock: Callable[[], float] = time.monotonic):
        self.rate, self.burst, self.clock = per_minute / 60, burst, clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, client: str) -> float:
        """Take a token and return 0; from an empty bucket, return the seconds until there is one."""
        with self._lock:
            now = self.clock()
            tokens, since = self._buckets.pop(client, (float(self.burst), now))
            tokens = min(self.burst, tokens + (now - since) * self.rate)
            waiting = 0.0 if tokens >= 1 else (1 - tokens) / self.rate
            self._buckets[client] = (tokens if waiting else tokens - 1, now)
            if len(self._buckets) > CLIENTS:
                self._buckets.popitem(last=False)
            return waiting
