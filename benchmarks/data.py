"""How fast are CIFAR-10 batches with pad-crop-flip: the in-memory loader against one image at a time with PIL?

Images per second of wall time; the floor is copying the batch out of the set. The real set is used when a data root has it,
bytes of the same shape otherwise.
"""

import functools
import random
import time
from collections.abc import Callable

import numpy as np
import torch
from _harness import parser, report
from PIL import Image, ImageOps

from hypersphere.data import CIFAR10, Compose, CropFlip, InMemory, Loader, Normalize
from hypersphere.data.roots import locate

BATCH, BATCHES = 128, 60
NORMALIZE = Normalize(127.5, 128.0)


def dataset() -> tuple[InMemory, str]:
    if locate("cifar10"):
        return CIFAR10(), "the real training set"
    data = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (50000, 3, 32, 32), dtype=np.uint8))
    return InMemory(data, torch.arange(50000) % 10, [str(c) for c in range(10)]), "synthetic bytes of its shape"


def through_loader(loader: Loader) -> int:
    loader.seek(loader.epoch + 1)
    seen = 0
    for i, (data, _) in enumerate(loader):
        seen += len(data)
        if i + 1 == BATCHES:
            break
    return seen


def copied(images: InMemory) -> int:
    for start in range(0, BATCH * BATCHES, BATCH):
        images.batch(torch.arange(start, start + BATCH))
    return BATCH * BATCHES


def through_pil(pictures: list[Image.Image], batches: int = 10) -> int:
    """What a per-image transform does: pad, crop, flip, array, scale, then stack."""
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
    args = parser(__doc__).parse_args()
    images, what = dataset()
    pictures = [Image.fromarray(image.permute(1, 2, 0).numpy()) for image in images.data[:5000]]
    load = functools.partial(Loader, images, BATCH)
    scaled = Compose(CropFlip(4), NORMALIZE)
    pil = "PIL, one image at a time, pad-crop-flip and scaling"
    work: dict[str, tuple[int, Callable[[], int]]] = {
        "copy a batch, in order": (args.threads, lambda: copied(images)),
        "loader, shuffled": (args.threads, functools.partial(through_loader, load())),
        "loader, pad-crop-flip": (args.threads, functools.partial(through_loader, load(augment=CropFlip(4)))),
        "loader, pad-crop-flip, one thread": (1, functools.partial(through_loader, load(augment=CropFlip(4)))),
        "loader, pad-crop-flip and scaling": (args.threads, functools.partial(through_loader, load(augment=scaled))),
        "loader, pad-crop-flip and scaling, one thread": (1, functools.partial(through_loader, load(augment=scaled))),
        pil: (1, functools.partial(through_pil, pictures)),
    }
    wall, busy = dict.fromkeys(work, 0.0), dict.fromkeys(work, 0.0)
    for _ in range(args.rounds + 1):  # the first round warms up caches and is bettered by the others
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
        f"{what}, batches of {BATCH}; both rates are the best of the rounds, the last column compares wall time. "
        "The aim is at least 20,000 images/s with pad-crop-flip."
    )
    report(
        "data", "CIFAR-10 batches", ["pipeline", "images/s", "images per CPU second", "against PIL"], rows, args, notes
    )


if __name__ == "__main__":
    main()
