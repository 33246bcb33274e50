"""Measures of a layer's directions in one pass over all pairs: energy, neighbors, duplicates."""

import functools
import math
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ..geometry import angle, normalize
from ..geometry.fast_norms import directions
from .gram_blocks import Pass, wide_dtype
from .hyperspherical import as_neurons
from .kernels import Kernel

BLOCK_ENTRIES = 1 << 21  # entries of a block of cosines
MAX_EXACT_NEURONS = 4096  # neurons whose neighbors are computed again in float64 to find duplicates
COSINE_ROUNDING = 1e-5  # rounding error of a cosine in float32: cosines above 1 − this may be duplicates


class PairMeasures(NamedTuple):
    """The result of :func:`measure_pairs`.

    Attributes:
        energy: The mean energy over ordered pairs, of which half space has 2N(2N − 1).
        nearest: The cosine of each neuron with its nearest neighbor, in the dtype of the layer.
        pairs: The nearest pairs (i, j, angle in radians), nearest first, computed in float64.
        duplicates: Pairs with a smaller angle than the given one, at most as many as there are neurons.
    """

    energy: float
    nearest: Float[Tensor, " neurons"]
    pairs: list[tuple[int, int, float]]
    duplicates: list[tuple[int, int]]


@torch.no_grad()
def measure_pairs(
    weight: Float[Tensor, "neurons *dim"],
    kernel: Kernel,
    half_space: bool = False,
    *,
    pairs: int = 3,
    duplicate: float = 1e-3,
    progress: Callable[[float], None] | None = None,
) -> PairMeasures:
    """Return the energy of a layer and its nearest neurons by one matrix product for each block of pairs.

    The memory is that of the directions plus, for each thread, a few blocks of two million cosines. The ``pairs`` nearest
    pairs are computed in float64. So are the duplicates, pairs nearer than ``duplicate`` radians, among the 4,096 neurons
    with the nearest neighbors. ``progress`` is called with the share of the pairs that are done.

    >>> measured = measure_pairs(torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 0.0]]), hs.energy.Riesz(1), pairs=1)
    >>> measured.pairs, measured.duplicates
    ([(0, 2, 0.0)], [(0, 2)])
    """
    rows = as_neurons(weight)
    n = len(rows)
    x, _ = directions(rows.unsqueeze(0))
    total, nearest = _sum_all_pairs(rows, x, kernel, half_space, progress)
    energy = total / (n * (n - 1))
    if half_space:
        antipodal = kernel(torch.tensor(4.0, dtype=torch.float64)).item()
        energy = antipodal / (2 * n - 1) + energy * (n - 1) / (2 * n - 1)
    neighbors = _find_neighbors(rows, nearest, pairs, duplicate)
    duplicates = [(i, j) for i, j, theta in neighbors if theta < duplicate][:n]
    return PairMeasures(energy, nearest, neighbors[:pairs], duplicates)


def _sum_all_pairs(
    rows: Tensor, x: Tensor, kernel: Kernel, half_space: bool, progress: Callable[[float], None] | None
) -> tuple[float, Tensor]:
    """Return the sum over ordered pairs and the largest cosine of each neuron.

    On the CPU each thread computes whole blocks. Threads that share an operation wait for each other at its end, and on a
    busy machine they wait longer than they compute. The sums of the blocks are added in a fixed order, so the result does
    not depend on which thread finishes first.
    """
    n = len(rows)
    chunk, threads, lock, done = max(64, min(n, BLOCK_ENTRIES // n)), torch.get_num_threads(), threading.Lock(), 0
    waiting = deque(enumerate(range(0, n, chunk)))
    workers = min(threads, len(waiting)) if x.device.type == "cpu" else 1
    totals = torch.zeros(len(waiting), dtype=wide_dtype(x), device=x.device)

    @torch.no_grad()
    def work() -> Tensor:
        nonlocal done
        nearest = torch.full((n,), -2.0, dtype=x.dtype, device=x.device)

        def inspect(cos: Tensor, start: int, stop: int) -> None:
            torch.maximum(nearest[start:stop], cos[0].amax(1), out=nearest[start:stop])
            torch.maximum(nearest[start:], cos[0].amax(0), out=nearest[start:])

        while True:
            try:
                number, start = waiting.popleft()
            except IndexError:
                return nearest
            stop = min(start + chunk, n)
            block = Pass(kernel, half_space, rows.unsqueeze(0), x, None, None, inspect=inspect, values_only=True)
            totals[number] = block.block(start, stop)[0]
            with lock:
                done += (n - start) ** 2 - (n - stop) ** 2
                if progress is not None:
                    progress(done / n**2)

    if workers == 1:
        nearest = work()
    else:
        try:
            with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
                try:
                    futures = [pool.submit(work) for _ in range(workers)]
                    nearest = functools.reduce(torch.maximum, [future.result() for future in futures])
                finally:
                    waiting.clear()  # after an error, the other threads end after their current block
        finally:
            torch.set_num_threads(threads)
    return totals.sum().item(), nearest


def _find_neighbors(rows: Tensor, nearest: Tensor, pairs: int, duplicate: float) -> list[tuple[int, int, float]]:
    """Return the nearest pairs in float64, which are pairs of the neurons with the nearest neighbors."""
    n = len(rows)
    near = int((nearest > min(math.cos(duplicate), 1 - COSINE_ROUNDING) - COSINE_ROUNDING).sum())
    count = min(n, max(2 * pairs + 16, min(near, MAX_EXACT_NEURONS)))
    chosen = nearest.topk(count).indices.sort().values
    x = normalize(rows.to(wide_dtype(rows)))
    angles: dict[tuple[int, int], float] = {}
    for part in chosen.split(max(1, BLOCK_ENTRIES // n)):
        cos = x[part] @ x.T
        cos[torch.arange(len(part), device=x.device), part] = -2
        best, where = cos.topk(min(max(pairs, 8), n - 1), dim=1)
        theta = angle(x[part].unsqueeze(1), x[where])
        keep = best > -2
        for a, b, t in zip(
            part.unsqueeze(1).expand_as(where)[keep].tolist(), where[keep].tolist(), theta[keep].tolist(), strict=True
        ):
            angles[min(a, b), max(a, b)] = t
    return sorted(((i, j, t) for (i, j), t in angles.items()), key=lambda entry: (entry[2], entry[:2]))
