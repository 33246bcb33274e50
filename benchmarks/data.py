"""How fast are CIFAR-10 batches with pad-crop-flip: the in-memory loader against one image at a time with PIL?

Images per second of wall time; the floor is copying the batch out of the set. The real set is used when a data root has it,
bytes of the same shape otherwise.
"""

import functools
import random
import time

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
    torch.set_num_threads(args.threads)
    images, what = dataset()
    pictures = [Image.fromarray(image.permute(1, 2, 0).numpy()) for image in images.data[:5000]]
    load = functools.partial(Loader, images, BATCH)
    work = {
        "copy a batch, in order": lambda: copied(images),
        "loader, shuffled": functools.partial(through_loader, load()),
        "loader, pad-crop-flip": functools.partial(through_loader, load(augment=CropFlip(4))),
        "loader, pad-crop-flip and scaling": functools.partial(through_loader, load(augment=Compose(CropFlip(4), NORMALIZE))),
        "PIL, one image at a time, and scaling": functools.partial(through_pil, pictures),
    }
    best = dict.fromkeys(work, 0.0)
    for _ in range(args.rounds + 1):  # the first round warms up caches and is bettered by the others
        for name, run in work.items():
            start = time.perf_counter()
            count = run()
            best[name] = max(best[name], count / (time.perf_counter() - start))
    slowest = best["PIL, one image at a time, and scaling"]
    rows: list[list[object]] = [[name, f"{speed:,.0f}", f"{speed / slowest:.1f}×"] for name, speed in best.items()]
    notes = f"{what}, batches of {BATCH}; wall time, the best of the rounds. The aim is at least 20,000 images/s with pad-crop-flip."
    report("data", "CIFAR-10 batches per second", ["pipeline", "images/s", "against PIL"], rows, args, notes)


if __name__ == "__main__":
    main()
