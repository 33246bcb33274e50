"""Count the source files that one call enters: how many files a reader has to open to follow it.

Run ``python benchmarks/files_entered.py`` for a table, or ``--list`` for the names of the files as well.
"""

import argparse
import pathlib
import sys
from collections.abc import Callable
from types import FrameType

import torch

import hypersphere as hs

SOURCE = pathlib.Path(hs.__file__).parent


def trace_files(call: Callable[[], object]) -> list[str]:
    """Return the files of the package in which ``call()`` runs a function, in the order of their names."""
    entered: set[str] = set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            entered.add(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    root = f"{SOURCE}/"
    return sorted(name.removeprefix(root) for name in entered if name.startswith(root))


def trace_head(num_classes: int, batch: int = 128, in_features: int = 512) -> list[str]:
    """Return the files that an ArcFace head enters in one forward and backward pass.

    The first pass is not counted, because it may run initialization that no later pass repeats.
    """
    head = hs.ArcFace(in_features, num_classes)
    features = torch.randn(batch, in_features, requires_grad=True)
    labels = torch.randint(0, num_classes, (batch,))

    def step() -> None:
        head(features, labels).backward()

    step()
    return trace_files(step)


def main() -> None:
    """Print the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true", help="print the names of the files")
    listed = parser.parse_args().list
    for num_classes in (10, 1_000, 100_000):
        files = trace_head(num_classes, batch=128 if num_classes < 100_000 else 8)
        print(f"head, {num_classes:,} classes: {len(files)} files")
        if listed:
            print(*[f"    {name}" for name in files], sep="\n")


if __name__ == "__main__":
    main()
