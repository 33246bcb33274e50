import threading
from concurrent.futures import CancelledError

import pytest
import torch

from hypersphere.recognition.service import Batcher


def image(value):
    return torch.full((1, 1, 2, 2), value, dtype=torch.uint8)


class Held:
    """An embedder that blocks until it is released, and records its batches."""

    def __init__(self):
        self.begun, self.go, self.batches = threading.Event(), threading.Event(), []

    def __call__(self, samples):
        pixels = torch.cat(list(samples))
        self.begun.set()
        assert self.go.wait(30)
        self.batches.append(pixels[:, 0, 0, 0].tolist())
        return pixels.float().mean((2, 3))


def test_what_waits_is_embedded_together_and_each_gets_its_own():
    held = Held()
    batcher = Batcher(held, window=0)
    first = batcher.submit([image(9)])
    assert held.begun.wait(30)
    others = [batcher.submit([image(i), image(i + 1)]) for i in (1, 3, 5)]
    held.go.set()
    assert first.result(30).tolist() == [[9]]
    assert [other.result(30).tolist() for other in others] == [[[1], [2]], [[3], [4]], [[5], [6]]]
    assert held.batches == [[9], [1, 2, 3, 4, 5, 6]]
    batcher.close()


def test_a_batch_has_a_largest_size_but_no_request_is_torn_apart():
    held = Held()
    batcher = Batcher(held, window=0, max_batch=3)
    futures = [batcher.submit([image(0)])]
    assert held.begun.wait(30)
    futures += [batcher.submit([image(n)] * n) for n in (2, 1, 5, 1)]
    held.go.set()
    assert [len(future.result(30)) for future in futures] == [1, 2, 1, 5, 1]
    assert held.batches == [[0], [2, 2, 1], [5] * 5, [1]]
    batcher.close()


def test_the_window_ends_early_when_a_batch_is_full():
    batcher = Batcher(lambda samples: torch.cat(list(samples)).float().mean((2, 3)), window=60, max_batch=2)
    futures = [batcher.submit([image(i)]) for i in range(2)]
    assert [future.result(30).item() for future in futures] == [0, 1]
    batcher.close()


def test_what_was_cancelled_is_not_embedded():
    held = Held()
    batcher = Batcher(held, window=0)
    batcher.submit([image(1)])
    assert held.begun.wait(30)
    cancelled, kept = batcher.submit([image(2)]), batcher.submit([image(3)])
    assert cancelled.cancel()
    held.go.set()
    assert kept.result(30).item() == 3
    assert held.batches == [[1], [3]]
    with pytest.raises(CancelledError):
        cancelled.result(30)
    batcher.close()


def test_an_error_goes_to_those_who_asked_and_the_thread_lives_on():
    def sometimes(samples):
        pixels = torch.cat(list(samples))
        if pixels.max() == 7:
            raise RuntimeError("no such picture")
        return pixels.float().mean((2, 3))

    batcher = Batcher(sometimes, window=0)
    with pytest.raises(RuntimeError, match="no such picture"):
        batcher.submit([image(7)]).result(30)
    assert batcher.submit([image(6)]).result(30).item() == 6
    assert batcher.alive
    batcher.close()


def test_closing_finishes_what_was_submitted():
    held = Held()
    batcher = Batcher(held, window=60, max_batch=1)
    futures = [batcher.submit([image(i)]) for i in range(5)]
    held.go.set()
    batcher.close()
    assert [future.result(0).item() for future in futures] == [0, 1, 2, 3, 4]
    assert not batcher.alive
    with pytest.raises(RuntimeError, match="closed"):
        batcher.submit([image(1)])
    batcher.close()
