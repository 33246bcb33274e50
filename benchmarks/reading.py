"""Measure the time to read a dataset from its archive, and again from the decoded cache.

    HYPERSPHERE_DATA=… python benchmarks/reading.py --record

CPU seconds; the pictures of both readings are compared. The cache is in a temporary folder.
"""

import functools
import os
import tempfile
import time
from collections.abc import Callable

import torch
from _harness import make_parser, write_report

from hypersphere.data import LFW, InMemory, Omniglot, TinyImageNet

SETS: dict[str, Callable[[], InMemory]] = {
    "Tiny-ImageNet, 100,000 training images": TinyImageNet,
    "LFW, 13,233 faces": LFW,
    "Omniglot, 19,280 background drawings at 28×28": functools.partial(Omniglot, size=28),
}


def time_reading(read: Callable[[], InMemory]) -> tuple[InMemory, float]:
    start = time.process_time()
    return read(), time.process_time() - start


def main() -> None:
    args = make_parser(__doc__).parse_args()
    torch.set_num_threads(args.threads)
    rows: list[list[object]] = []
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HYPERSPHERE_CACHE"] = folder
        for name, read in SETS.items():
            first, cold = time_reading(read)
            second, warm = time_reading(read)
            if not torch.equal(first.data, second.data):
                raise SystemExit(f"{name}: the second reading returned different pictures")
            rows.append([name, tuple(first.data.shape), cold, warm])
    write_report(
        "reading",
        "Reading a dataset's archive",
        ["set", "shape", "first time, CPU s", "afterwards, CPU s"],
        rows,
        args,
        how="one reading each; files are in the system's cache.",
    )


if __name__ == "__main__":
    main()
