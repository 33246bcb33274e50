"""Compare the time of a step of `fit` with a hand-written loop with the same network, head, optimizer and augmentation.

    OMP_NUM_THREADS=1 python benchmarks/training_loop.py --threads 1 --record

5,000 color pictures of 32×32 in memory, 100 classes, batches of 64. Both sides draw their batches without replacement, shift and
mirror them with `CropFlip`, normalize them, and train SphereFace-10 of a quarter width with CosFace by SGD with momentum and
gradient clipping. The time of a step is that of 120 steps without that of 20, so that nothing counts that happens once.
"""

import statistics
import tempfile
import time
from collections.abc import Callable

import torch
from _harness import make_parser, write_report

from hypersphere import models, objectives
from hypersphere.data import CropFlip, InMemory, PicturePreprocessing
from hypersphere.training import Classification, ConstantRate, Settings, Trainer, call

PICTURES, CLASSES, BATCH, SHORT, LONG = 5000, 100, 64, 20, 120
CLIP = 5.0


def train_by_hand(data: InMemory, prepare: PicturePreprocessing, steps: int) -> None:
    """Train with a plain PyTorch loop around the parts of the library."""
    torch.manual_seed(0)
    body = models.sphereface10(None, width=0.25, in_channels=3, input_size=32)
    with torch.no_grad():
        dim = body(torch.zeros(1, 3, 32, 32)).shape[1]
    head = objectives.CosFace(dim, CLASSES, m=0.2, scale=24.0)
    parameters = [*body.parameters(), *head.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=5e-4)
    augment, step = CropFlip(pad=2), 0
    while step < steps:
        for rows in torch.randperm(len(data)).split(BATCH):
            if len(rows) < BATCH or step == steps:
                break
            images, labels = data.data[rows], data.labels[rows]
            u = torch.rand(len(rows), augment.draws(images.shape[1:]), dtype=torch.float64)
            x = prepare.normalize(augment(images, u))
            loss = head(body(x), labels)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(parameters, CLIP)
            optimizer.step()
            step += 1
            if step % 50 == 0:
                assert loss.item() > 0


def train_by_trainer(data: InMemory, prepare: PicturePreprocessing, steps: int) -> None:
    """Train with the trainer that `fit` uses."""
    torch.manual_seed(0)
    body = models.sphereface10(None, width=0.25, in_channels=3, input_size=32)
    task = Classification(
        body,
        call(objectives.CosFace, m=0.2, scale=24.0),
        data,
        InMemory(data.data[:BATCH], data.labels[:BATCH], data.classes),
        augment=CropFlip(pad=2),
        preprocessing=prepare,
        batch_size=BATCH,
    )
    settings = Settings(
        steps=steps,
        evaluate_every=steps,
        checkpoint_every=steps,
        log_every=50,
        clip=CLIP,
        pictures=False,
        schedule=call(ConstantRate),
        optimizer=call(torch.optim.SGD, lr=0.05, momentum=0.9, weight_decay=5e-4),
    )
    with tempfile.TemporaryDirectory() as folder:
        Trainer(task, folder, settings).run()


def measure(train: Callable[[InMemory, PicturePreprocessing, int], None], data: InMemory) -> float:
    """Return the CPU milliseconds of one step."""
    prepare = PicturePreprocessing(size=(32, 32), channels=3, mean=0.5, std=0.25)
    spent = []
    for steps in (SHORT, LONG):
        began = time.process_time()
        train(data, prepare, steps)
        spent.append(time.process_time() - began)
    return 1e3 * (spent[1] - spent[0]) / (LONG - SHORT)


def main() -> None:
    """Print the medians of interleaved rounds and their ratio."""
    p = make_parser(__doc__)
    p.set_defaults(threads=1)
    args = p.parse_args()
    torch.set_num_threads(args.threads)
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (PICTURES, 3, 32, 32), dtype=torch.uint8, generator=generator)
    labels = torch.arange(PICTURES) % CLASSES
    data = InMemory(pixels, labels, tuple(str(name) for name in range(CLASSES)))
    ways = {"by hand": train_by_hand, "trainer of fit": train_by_trainer}
    rounds = [{name: measure(way, data) for name, way in ways.items()} for _ in range(args.rounds)]
    ratios = sorted(one["by hand"] / one["trainer of fit"] for one in rounds)
    rows: list[list[object]] = []
    for name in ways:
        middle = statistics.median(one[name] for one in rounds)
        rows.append([name, middle, 1e3 * BATCH / middle])
    rows.append(["ratio of pictures/s (aim at least 0.95)", "–", statistics.median(ratios)])
    how = f"{args.rounds} interleaved rounds, medians of CPU time; ratios from {ratios[0]:.2f} to {ratios[-1]:.2f}."
    notes = __doc__.split("\n\n")[2]
    write_report("training_loop", "A step of training", ["loop", "ms", "pictures/s"], rows, args, notes, how)


if __name__ == "__main__":
    main()
