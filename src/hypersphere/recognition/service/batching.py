"""Images of concurrent requests embedded together by one thread, the only one that calls the network."""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from jaxtyping import Float
from torch import Tensor

Job = tuple[Sequence[Tensor], "Future[Tensor]"]
"""The prepared samples of one request, each with its windows, and the future of their features."""


class Batcher:
    """Collects images that arrive within a short window and embeds them in one batch.

    Args:
        embed: Computes the features of prepared samples, each with its windows (k, …), such as ``Embedder.of_windows``.
        window: Seconds that the first image of a batch waits for others.
        max_batch: Maximum number of images in a batch. A larger request is a batch of its own.

    >>> batcher = Batcher(lambda samples: torch.cat(list(samples)).float().mean((2, 3)))
    >>> batcher.submit([torch.full((1, 3, 2, 2), 7, dtype=torch.uint8)]).result().tolist()
    [[7.0, 7.0, 7.0]]
    >>> batcher.close()
    """

    def __init__(self, embed: Callable[[Sequence[Tensor]], Tensor], window: float = 0.002, max_batch: int = 32):
        self.embed, self.window, self.max_batch = embed, window, max_batch
        self._jobs: deque[Job] = deque()
        self._change = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="embedder", daemon=True)
        self._thread.start()

    def submit(self, images: Sequence[Tensor]) -> "Future[Tensor]":
        """Queue the prepared images of one request, and return a future of their features ``(n, d)`` on the CPU.

        Images are not embedded if their future was canceled before.

        Raises:
            RuntimeError: If the batcher is closed.
        """
        future: Future[Tensor] = Future()
        with self._change:
            if self._closed:
                raise RuntimeError("the batcher is closed")
            self._jobs.append((list(images), future))
            self._change.notify()
        return future

    @property
    def alive(self) -> bool:
        """Whether the thread is running."""
        return self._thread.is_alive()

    def close(self) -> None:
        """Finish the submitted work and end the thread."""
        with self._change:
            self._closed = True
            self._change.notify()
        self._thread.join()

    def _run(self) -> None:
        while jobs := self._take_jobs():
            pending = [(images, future) for images, future in jobs if future.set_running_or_notify_cancel()]
            if pending:
                self._embed_jobs(pending)

    def _take_jobs(self) -> list[Job]:
        """Wait for the jobs of the next batch and return them; none after the last one of a closed batcher."""
        with self._change:
            self._change.wait_for(lambda: self._jobs or self._closed)
            end = time.monotonic() + self.window
            while not self._closed and self._count_waiting() < self.max_batch and (left := end - time.monotonic()) > 0:
                self._change.wait(left)
            batch: list[Job] = []
            count = 0
            while self._jobs and (not batch or count + len(self._jobs[0][0]) <= self.max_batch):
                batch.append(self._jobs.popleft())
                count += len(batch[-1][0])
            return batch

    def _count_waiting(self) -> int:
        return sum(len(images) for images, _ in self._jobs)

    def _embed_jobs(self, jobs: Sequence[Job]) -> None:
        try:
            features: Float[Tensor, "n d"] = self.embed([windows for images, _ in jobs for windows in images]).cpu()
            parts = features.split([len(images) for images, _ in jobs])
        except Exception as error:
            for _, future in jobs:
                future.set_exception(error)
            return
        for (_, future), part in zip(jobs, parts, strict=True):
            future.set_result(part.clone())
