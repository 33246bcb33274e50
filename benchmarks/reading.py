"""How long does a dataset take to read: the first time, from its archive, and afterwards, from what was kept decoded?

    HYPERSPHERE_DATA=… python benchmarks/reading.py --record

CPU seconds; the pictures of both readings are compared. Kept files go to a folder of their own that is removed at the end.
"""

import functools
import os
import tempfile
import time
from collections.abc import Callable

import torch
from _harness import parser, report

from hypersphere.data import LFW, InMemory, Omniglot, TinyImageNet

SETS: dict[str, Callable[[], InMemory]] = {
    "Tiny-ImageNet, 100,000 training images": TinyImageNet,
    "LFW, 13,233 faces": LFW,
    "Omniglot, 19,280 background drawings at 28×28": functools.partial(Omniglot, size=28),
}


def timed(read: Callable[[], InMemory]) -> tuple[InMemory, float]:
    start = time.process_time()
    return read(), time.process_time() - start


def main() -> None:
    args = parser(__doc__).parse_args()
    torch.set_num_threads(args.threads)
    rows: list[list[object]] = []
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HYPERSPHERE_CACHE"] = folder
        for name, read in SETS.items():
            first, cold = timed(read)
            second, warm = timed(read)
            if not torch.equal(first.data, second.data):
                raise SystemExit(f"{name}: the second reading gave other pictures")
            rows.append([name, tuple(first.data.shape), cold, warm])
    report(
        "reading",
        "Reading a dataset's archive",
        ["set", "shape", "first time, CPU s", "afterwards, CPU s"],
        rows,
        args,
        how="one reading each; files are in the system's cache.",
    )


if __name__ == "__main__":
    main()
