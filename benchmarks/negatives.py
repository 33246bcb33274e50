"""Measure whether heads that learn from negatives reject strangers better, on handwritten digits with unseen classes.

    OMP_NUM_THREADS=1 python benchmarks/negatives.py --record

A seed draws six digits that are known, two that are negatives in training, and two that are strangers in the test. Every arm trains
the same small network for the same steps. "AUROC" is the chance that a known test digit has a higher score than a stranger; "named"
is the share of known test digits that are named correctly at the threshold that one stranger in twenty exceeds.
"""

import math
import statistics
from collections.abc import Callable

import torch
from _harness import make_parser, write_report
from torch import Tensor, nn

from hypersphere import data, objectives

KNOWN, NEGATIVES = 6, 2
STEPS, BATCH, DIM = 300, 128, 16


class Cosine(nn.Module):
    """A head of cosines; the score of a sample is its largest cosine."""

    def __init__(self, head: nn.Module):
        super().__init__()
        self.head = head

    def forward(self, features: Tensor, labels: Tensor) -> Tensor:
        return self.head(features, labels)

    def score(self, features: Tensor) -> Tensor:
        return self.cosines(features)[:, :KNOWN].amax(1)

    def predict(self, features: Tensor) -> Tensor:
        return self.cosines(features)[:, :KNOWN].argmax(1)

    def cosines(self, features: Tensor) -> Tensor:
        return nn.functional.normalize(features) @ nn.functional.normalize(self.head.weight).T


# The head, and the label of negatives; None leaves them out.
ARMS: dict[str, tuple[Callable[[], nn.Module], int | None]] = {
    "CosFace": (lambda: Cosine(objectives.CosFace(DIM, KNOWN, m=0.2, scale=16.0)), None),
    "CosFace, negatives as one more class": (
        lambda: Cosine(objectives.CosFace(DIM, KNOWN + 1, m=0.2, scale=16.0)),
        KNOWN,
    ),
    "AxialSphere": (lambda: objectives.AxialSphere(DIM, KNOWN), None),
    "AxialSphere, mixed": (lambda: objectives.AxialSphere(DIM, KNOWN, mix=True), None),
    "AxialSphere, negatives": (lambda: objectives.AxialSphere(DIM, KNOWN), -1),
}


def measure(arm: str, seed: int) -> tuple[float, float]:
    """Train once; return the AUROC and the share of known digits that are recognized, both in percent."""
    torch.manual_seed(seed)
    digits = torch.randperm(10)
    place = torch.empty(10, dtype=torch.long)
    place[digits] = torch.arange(10)
    train, test = data.Digits(train=True), data.Digits(train=False)
    make, negative = ARMS[arm]
    images, labels = _scale_pixels(train), place[train.labels]
    used = labels < (KNOWN if negative is None else KNOWN + NEGATIVES)
    images, labels = images[used], labels[used]
    if negative is not None:
        labels = labels.masked_fill(labels >= KNOWN, negative)
    net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, DIM))
    head = make()
    optimizer = torch.optim.Adam([*net.parameters(), *head.parameters()], lr=3e-3)
    for _ in range(STEPS):
        rows = torch.randint(len(images), (BATCH,))
        loss = head(net(images[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        features, labels = net(_scale_pixels(test)), place[test.labels]
        score, named = head.score(features), head.predict(features)
    known, strangers = labels < KNOWN, labels >= KNOWN + NEGATIVES
    threshold = score[strangers].quantile(0.95)
    right = (named == labels) & (score > threshold)
    differences = score[known][:, None] - score[strangers]
    auroc = ((differences > 0).double() + 0.5 * (differences == 0)).mean().item()
    return 100 * auroc, 100 * right[known].double().mean().item()


def _scale_pixels(digits: data.Digits) -> Tensor:
    return digits.data.flatten(1).float() / 255 / 0.37


def format_interval(values: list[float]) -> str:
    """Format a mean with its 95 % interval over seeds."""
    half = 1.96 * statistics.stdev(values) / math.sqrt(len(values))
    return f"{statistics.mean(values):.1f} ± {half:.1f}"


def main() -> None:
    """Print a table of means and paired differences, and write it with ``--record``."""
    p = make_parser(__doc__)
    p.set_defaults(threads=1)
    p.add_argument("--seeds", type=int, default=20)
    args = p.parse_args()
    torch.set_num_threads(args.threads)
    found = {arm: [measure(arm, seed) for seed in range(args.seeds)] for arm in ARMS}
    rows: list[list[object]] = []
    for arm, results in found.items():
        row: list[object] = [arm]
        for which in (0, 1):
            own, first = ([result[which] for result in runs] for runs in (results, found["CosFace"]))
            row += [
                format_interval(own),
                "–" if arm == "CosFace" else format_interval([a - b for a, b in zip(own, first, strict=True)]),
            ]
        rows.append(row)
    header = ["head", "AUROC %", "less CosFace", "named %", "less CosFace"]
    how = f"{args.seeds} seeds, each with other digits; ± is a 95 % interval over seeds, of differences paired by seed."
    write_report("negatives", "Strangers among handwritten digits", header, rows, args, __doc__.split("\n\n")[2], how)


if __name__ == "__main__":
    main()
