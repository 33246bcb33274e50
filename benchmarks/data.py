"""Compare the in-memory loader with one image at a time in PIL, on CIFAR-10 batches with pad-crop-flip.

Measures images per second of wall-clock time. The floor is copying the batch out of the dataset. Uses CIFAR-10 if a data root
contains it, otherwise random bytes of the same shape.
"""

import functools
import random
import time
from collections.abc import Callable

import numpy as np
import torch
from _harness import make_parser, write_report
from PIL import Image, ImageOps

from hypersphere.data import CIFAR10, Compose, CropFlip, InMemory, Loader, Normalize
from hypersphere.data.roots import locate

BATCH, BATCHES = 128, 60
NORMALIZE = Normalize(127.5, 128.0)


def load_dataset() -> tuple[InMemory, str]:
    """Return CIFAR-10 or random pictures of the same shape, and a description."""
    if locate("cifar10"):
        return CIFAR10(), "the real training set"
    data = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (50000, 3, 32, 32), dtype=np.uint8))
    return InMemory(data, torch.arange(50000) % 10, [str(c) for c in range(10)]), "random bytes of the same shape"


def read_with_loader(loader: Loader) -> int:
    """Read ``BATCHES`` batches and return the number of images."""
    loader.seek(loader.epoch + 1)
    count = 0
    for i, (data, _) in enumerate(loader):
        count += len(data)
        if i + 1 == BATCHES:
            break
    return count


def copy_batches(images: InMemory) -> int:
    """Copy ``BATCHES`` batches out of the dataset and return the number of images."""
    for start in range(0, BATCH * BATCHES, BATCH):
        images.batch(torch.arange(start, start + BATCH))
    return BATCH * BATCHES


def transform_with_pil(pictures: list[Image.Image], batches: int = 10) -> int:
    """Pad, crop, flip and scale one image at a time, stack the batches, and return the number of images."""
    draw = random.Random(0)
    for _ in range(batches):
        batch = []
        for _ in range(BATCH):
            x, y = draw.randrange(9), draw.randrange(9)
            picture = ImageOps.expand(pictures[draw.randrange(len(pictures))], 4).crop((x, y, x + 32, y + 32))
            if draw.random() < 0.5:
                picture = ImageOps.mirror(picture)
            pixels = torch.from_numpy(np.array(picture)).permute(2, 0, 1)
            batch.append((pixels.float() - 127.5) / 128)
        torch.stack(batch)
    return batches * BATCH


def main() -> None:
    args = make_parser(__doc__).parse_args()
    images, description = load_dataset()
    pictures = [Image.fromarray(image.permute(1, 2, 0).numpy()) for image in images.data[:5000]]
    load = functools.partial(Loader, images, BATCH)
    scaled = Compose(CropFlip(4), NORMALIZE)
    pil = "PIL, one image at a time, pad-crop-flip and scaling"
    work: dict[str, tuple[int, Callable[[], int]]] = {
        "copy a batch, in order": (args.threads, lambda: copy_batches(images)),
        "loader, shuffled": (args.threads, functools.partial(read_with_loader, load())),
        "loader, pad-crop-flip": (args.threads, functools.partial(read_with_loader, load(augment=CropFlip(4)))),
        "loader, pad-crop-flip, one thread": (1, functools.partial(read_with_loader, load(augment=CropFlip(4)))),
        "loader, pad-crop-flip and scaling": (args.threads, functools.partial(read_with_loader, load(augment=scaled))),
        "loader, pad-crop-flip and scaling, one thread": (1, functools.partial(read_with_loader, load(augment=scaled))),
        pil: (1, functools.partial(transform_with_pil, pictures)),
    }
    wall, busy = dict.fromkeys(work, 0.0), dict.fromkeys(work, 0.0)
    for _ in range(args.rounds + 1):  # the first round also warms up caches; the best round counts
        for name, (threads, run) in work.items():
            torch.set_num_threads(threads)
            start, cpu = time.perf_counter(), time.process_time()
            count = run()
            wall[name] = max(wall[name], count / (time.perf_counter() - start))
            busy[name] = max(busy[name], count / (time.process_time() - cpu))
    rows: list[list[object]] = [
        [name, f"{wall[name]:,.0f}", f"{busy[name]:,.0f}", f"{wall[name] / wall[pil]:.1f}×"] for name in work
    ]
    notes = (
        f"{description}, batches of {BATCH}. Both rates are the best of the rounds; the last column compares wall-clock time. "
        "The goal is at least 20,000 images/s with pad-crop-flip."
    )
    write_report(
        "data",
        "CIFAR-10 batches",
        ["pipeline", "images/s", "images per CPU second", "relative to PIL"],
        rows,
        args,
        notes,
    )


if __name__ == "__main__":
    main()
