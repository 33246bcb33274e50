"""Count the source files that one call executes, which a reader has to open to follow the call.

Run ``python benchmarks/files_entered.py`` for a table, or ``--list`` for the names of the files as well.
"""

import argparse
import importlib
import inspect
import pathlib
import sys
import tempfile
import threading
from collections.abc import Callable
from types import FrameType

import numpy as np
import torch
from PIL import Image

import hypersphere as hs

SOURCE = pathlib.Path(hs.__file__).parent


def trace_files(call: Callable[[], object]) -> list[str]:
    """Return the files of the package in which ``call()`` executes a function, sorted by name."""
    entered: set[str] = set()

    def record_call(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_flags & inspect.CO_OPTIMIZED:  # a function, not a module or class body
            entered.add(frame.f_code.co_filename)

    threading.setprofile(record_call)
    sys.setprofile(record_call)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    root = f"{SOURCE}/"
    return sorted(name.removeprefix(root) for name in entered if name.startswith(root))


def trace_head(num_classes: int, batch: int = 128, in_features: int = 512) -> list[str]:
    """Return the files that an ArcFace head executes in one forward and backward pass.

    The first pass is not counted, because it may run one-time initialization.
    """
    head = hs.ArcFace(in_features, num_classes)
    features = torch.randn(batch, in_features, requires_grad=True)
    labels = torch.randint(0, num_classes, (batch,))

    def step() -> None:
        head(features, labels).backward()

    step()
    return trace_files(step)


def trace_fit(pictures: int = 32, identities: int = 8) -> list[str]:
    """Return the files that ``fit`` executes on a folder of small random pictures, in two training steps.

    The package is imported first, so that imports are not counted.
    """
    importlib.import_module("hypersphere.training")
    with tempfile.TemporaryDirectory() as folder:
        pixels = np.random.default_rng(0).integers(0, 255, (pictures, 16, 16, 3), dtype=np.uint8)
        for i, picture in enumerate(pixels):
            path = pathlib.Path(folder, "people", f"{i % identities}", f"{i}.png")
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(picture).save(path)
        return trace_files(lambda: hs.fit(f"{folder}/people", f"{folder}/run", steps=2, threads=1))


def main() -> None:
    """Print the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true", help="print the names of the files")
    list_names = parser.parse_args().list
    for num_classes in (10, 1_000, 100_000):
        files = trace_head(num_classes, batch=128 if num_classes < 100_000 else 8)
        print(f"head, {num_classes:,} classes: {len(files)} files")
        if list_names:
            print(*[f"    {name}" for name in files], sep="\n")
    files = trace_fit()
    print(f"fit, 32 pictures: {len(files)} files")
    if list_names:
        print(*[f"    {name}" for name in files], sep="\n")


if __name__ == "__main__":
    main()
