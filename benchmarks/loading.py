"""Compare reading batches from JPEG files, tar shards and the decoded cache with arrays in memory.

Reports the CPU time of one pass over the same pictures, relative to copying batches out of an array, and the throughput.
"""

import functools
import io
import pathlib
import tarfile
import tempfile

import numpy as np
import torch
from _harness import make_parser, time_interleaved, write_report
from PIL import Image

from hypersphere.data import Loader, PicturePreprocessing, cache_decoded, open_source

COUNT, SIDE, BATCH = 1024, 128, 128


def make_pictures() -> list[bytes]:
    """Return JPEG files of smooth patterns with noise, about as large as photographs of this size."""
    draw = np.random.default_rng(0)
    files = []
    for _ in range(COUNT):
        coarse = Image.fromarray(draw.integers(0, 256, (12, 12, 3), dtype=np.uint8)).resize(
            (SIDE, SIDE), Image.Resampling.BICUBIC
        )
        pixels = (np.asarray(coarse) + draw.normal(0, 6, (SIDE, SIDE, 3))).clip(0, 255).astype(np.uint8)
        stream = io.BytesIO()
        Image.fromarray(pixels).save(stream, "JPEG", quality=90)
        files.append(stream.getvalue())
    return files


def write_pictures(root: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """Write the pictures as a folder of identities and as one tar shard, and return both paths."""
    with tarfile.open(root / "all.tar", "w") as archive:
        for i, content in enumerate(make_pictures()):
            folder = root / "folder" / f"id{i % 32:02d}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{i}.jpg").write_bytes(content)
            for ending, inside in (("jpg", content), ("cls", b"id%02d" % (i % 32))):
                info = tarfile.TarInfo(f"{i}.{ending}")
                info.size = len(inside)
                archive.addfile(info, io.BytesIO(inside))
    return root / "folder", root / "all.tar"


def read_epoch(loader: Loader) -> int:
    loader.seek(loader.epoch + 1)
    return sum(len(labels) for _, labels in loader)


def main() -> None:
    args = make_parser(__doc__).parse_args()
    torch.set_num_threads(args.threads)
    rows: list[list[object]] = []
    with tempfile.TemporaryDirectory() as name:
        folder, shard = write_pictures(pathlib.Path(name))
        for size in (48, 112):
            prepare = PicturePreprocessing(size=(size, size))
            files = open_source(folder).dataset(prepare)
            cache = cache_decoded(files, pathlib.Path(name) / "cache")
            floor = "decoded arrays in memory"
            sets = {
                floor: files.in_memory(),
                "decoded cache on disk, checksums compared": cache,
                "folder of JPEG files": files,
                "tar shard": open_source(shard).dataset(prepare),
            }
            work = {what: functools.partial(read_epoch, Loader(data, BATCH)) for what, data in sets.items()}
            found = time_interleaved(work, args.rounds)
            rows += [
                [f"{size}×{size}", what, f"{COUNT / found[what]:,.0f}", found[what] / found[floor]] for what in sets
            ]
    write_report(
        "loading",
        "Reading batches of pictures",
        ["size", "from", "pictures per CPU second", "time against the arrays"],
        rows,
        args,
        f"{COUNT} JPEG files of {SIDE}×{SIDE} in color, shuffled batches of {BATCH} as 8-bit tensors, decoded in the calling "
        "thread; files are in the system's cache.",
    )


if __name__ == "__main__":
    main()
