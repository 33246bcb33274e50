"""Images of concurrent requests embedded together by one thread, the only one that calls the network."""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from jaxtyping import Float
from torch import Tensor

Job = tuple[
    Sequence[Tensor], "Future[Tensor]"
]  # requests differ in how many samples they bring, and samples in their windows


class Batcher:
    """Collects images that arrive within a short window and embeds them in one batch.

    Args:
        embed: Features of prepared samples, each with its windows (k, …), such as ``Embedder.of_windows``.
        window: Seconds that the first image of a batch waits for others.
        largest: Images from which on a batch does not wait.

    >>> batcher = Batcher(lambda samples: torch.cat(list(samples)).float().mean((2, 3)))
    >>> batcher.submit([torch.full((1, 3, 2, 2), 7, dtype=torch.uint8)]).result().tolist()
    [[7.0, 7.0, 7.0]]
    >>> batcher.close()
    """

    def __init__(self, embed: Callable[[Sequence[Tensor]], Tensor], window: float = 0.002, largest: int = 32):
        self.embed, self.window, self.largest = embed, window, largest
        self._jobs: deque[Job] = deque()
        self._change = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="embedder", daemon=True)
        self._thread.start()

    def submit(self, images: Sequence[Tensor]) -> "Future[Tensor]":
        """Queue prepared images of one request; the future gives their features ``(n, d)`` on the CPU.

        A future that is cancelled before its turn costs nothing. After :meth:`close` this is a ``RuntimeError``.
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
        """Close the queue after the submitted work, and end the thread."""
        with self._change:
            self._closed = True
            self._change.notify()
        self._thread.join()

    def _run(self) -> None:
        while jobs := self._take():
            wanted = [(images, future) for images, future in jobs if future.set_running_or_notify_cancel()]
            if wanted:
                self._work(wanted)

    def _take(self) -> list[Job]:
        """Return the next jobs, at least one; none when the batcher is closed and all is done."""
        with self._change:
            self._change.wait_for(lambda: self._jobs or self._closed)
            end = time.monotonic() + self.window
            while not self._closed and self._count_waiting() < self.largest and (left := end - time.monotonic()) > 0:
                self._change.wait(left)
            taken: list[Job] = []
            count = 0
            while self._jobs and (not taken or count + len(self._jobs[0][0]) <= self.largest):
                taken.append(self._jobs.popleft())
                count += len(taken[-1][0])
            return taken

    def _count_waiting(self) -> int:
        return sum(len(images) for images, _ in self._jobs)

    def _work(self, jobs: Sequence[Job]) -> None:
        try:
            features: Float[Tensor, "n d"] = self.embed([windows for images, _ in jobs for windows in images]).cpu()
            parts = features.split([len(images) for images, _ in jobs])
        except Exception as error:
            for _, future in jobs:
                future.set_exception(error)
            return
        for (_, future), part in zip(jobs, parts, strict=True):
            future.set_result(part.clone())
