"""Run tasks in advance in threads and return their results in order."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")


def ahead(work: Callable[[Task], Result], tasks: Iterable[Task], workers: int) -> Iterator[Result]:
    """Yield ``work(task)`` of each task in order, computed by ``workers`` threads at most two tasks each in advance.

    Without workers each task runs when its result is requested. An exception is raised in place of its result. A caller that
    stops early cancels the tasks that have not started.

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
