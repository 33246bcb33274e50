"""Work done ahead of its use by threads, in the order of the tasks."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")


def ahead(work: Callable[[Task], Result], tasks: Iterable[Task], workers: int) -> Iterator[Result]:
    """``work(task)`` of each task, in order, by ``workers`` threads that are at most two tasks each ahead of the caller.

    Without workers each task is done when its result is asked for. An exception comes where its result would have. A caller
    that stops early cancels what has not begun. One worker does the tasks one after the other.

    >>> list(ahead(lambda i: i * i, range(5), workers=2))
    [0, 1, 4, 9, 16]
    """
    if workers == 0:
        yield from map(work, tasks)
        return
    waiting = iter(tasks)
    pending: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(workers, thread_name_prefix="hypersphere-ahead") as pool:
        try:
            pending.extend(pool.submit(work, task) for task in islice(waiting, 2 * workers))
            while pending:
                result = pending.popleft().result()
                pending.extend(pool.submit(work, task) for task in islice(waiting, 1))
                yield result
        finally:
            for future in pending:
                future.cancel()
