"""Margin heads, forward and backward: time against dense F.cross_entropy(s·cos), memory in a fresh process.

Batch 128, d = 512, float32, C = 1k, 10k, 100k, 1M, for the presets, sub-centres, and pytorch-metric-learning.
"""

import functools
import gc
import os
import warnings
from collections.abc import Callable

import _harness
import torch
from torch import nn
from torch.nn import functional as F

from hypersphere import objectives

BATCH, DIM = 128, 512
CLASSES = {"1k": 1_000, "10k": 10_000, "100k": 100_000, "1M": 1_000_000}
PRESETS = ["Softmax", "LSoftmax", "WSoftmax", "SSoftmax", "ASoftmax", "GASoftmax", "AMSoftmax", "ArcFace"]
PEERS = {
    "PML NormalizedSoftmax": ("NormalizedSoftmaxLoss", {}),
    "PML SphereFace": ("SphereFaceLoss", {}),
    "PML CosFace": ("CosFaceLoss", {}),
    "PML ArcFace": ("ArcFaceLoss", {}),
    "PML SubCenterArcFace k=3": ("SubCenterArcFaceLoss", {"sub_centers": 3}),
}
# At 1M a dense head needs 8 GiB and more; the rows there are the ones that differ in kind.
LARGE = ["SSoftmax", "ASoftmax", "GASoftmax", "ArcFace", "PML CosFace"]


class Floor(nn.Module):
    """What one writes by hand: normalize, multiply, cross-entropy."""

    def __init__(self, classes: int):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(classes, DIM) * DIM**-0.5)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(30.0 * F.linear(F.normalize(x), F.normalize(self.weight)), y)


def make(name: str, classes: int) -> nn.Module:
    if name == "floor":
        return Floor(classes)
    if name == "ArcFace k=3":
        return objectives.ArcFace(DIM, classes, sub_centers=3)
    if name == "ArcFace bf16":
        return objectives.ArcFace(DIM, classes, matmul_dtype=torch.bfloat16)
    if name in PEERS:
        from pytorch_metric_learning import losses

        kind, options = PEERS[name]
        return getattr(losses, kind)(num_classes=classes, embedding_size=DIM, **options)
    return getattr(objectives, name)(DIM, classes)


def step(head: nn.Module, x: torch.Tensor, y: torch.Tensor) -> None:
    head.zero_grad(set_to_none=True)
    head(x.detach().requires_grad_(), y).backward()


def timed(head: nn.Module, x: torch.Tensor, y: torch.Tensor) -> None:
    step(head, x, y)
    head.zero_grad(set_to_none=True)  # heads wait for their turn without a gradient


def batch(classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(BATCH, DIM, generator=generator), torch.randint(0, classes, (BATCH,), generator=generator)


def names(size: str) -> list[str]:
    return LARGE if size == "1M" else [*PRESETS, "ArcFace k=3", "ArcFace bf16", *PEERS]


def ratios(size: str, rounds: int) -> dict[str, float]:
    """Time over the floor's, each taken in turn with the floor; at 1M only two heads fit into memory at a time."""
    classes = CLASSES[size]
    x, y = batch(classes)
    floor = make("floor", classes)
    found = {}
    groups = [names(size)] if classes <= 100_000 else [[name] for name in names(size)]
    for group in groups:
        work: dict[str, Callable[[], object]] = {"floor": functools.partial(timed, floor, x, y)}
        work |= {name: functools.partial(timed, make(name, classes), x, y) for name in group}
        seconds = _harness.interleaved(
            work, rounds, warmup=int(classes < 1_000_000), min_seconds=0.02 if classes <= 10_000 else 0.0
        )
        found |= {name: seconds[name] / seconds["floor"] for name in group}
        del work
        gc.collect()
    return found


def memory(name: str, classes: int) -> float:
    """Peak above the weight, its gradient included; a small head has run before, so that code and libraries are loaded."""
    step(make(name, 2_000), *batch(2_000))
    head, (x, y) = make(name, classes), batch(classes)
    gc.collect()
    return _harness.measure_peak(lambda: step(head, x, y))


def rows(size: str, rounds: int) -> list[list[object]]:
    classes = CLASSES[size]
    times = {"floor": 1.0, **ratios(size, rounds)}
    lines: list[list[object]] = []
    for name, ratio in times.items():
        peak = _harness.peak_memory(__file__, name, str(classes)) if classes >= 10_000 else float("nan")
        gradient = classes * DIM * 4 / 2**20 * (3 if "k=3" in name else 1)
        shown = ["–", "–"] if classes < 10_000 else [f"{peak:.0f}", f"{max(peak - gradient, 0):.0f}"]
        lines.append([size, name, ratio, *shown])
    return lines


def main() -> None:
    p = _harness.parser(__doc__)
    p.add_argument("--classes", nargs="+", default=list(CLASSES), choices=list(CLASSES))
    args = p.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(args.threads)
    if args.memory:
        print(memory(args.memory[0], int(args.memory[1])))
        return
    table = []
    for size in args.classes:
        table += rows(size, {"1k": args.rounds, "10k": args.rounds, "100k": min(args.rounds, 2), "1M": 1}[size])
    notes = (
        "Time is CPU time over dense `F.cross_entropy(s·cos)` in the same run. Memory is the peak in a fresh process above the\n"
        "weight: in the last column but one with the weight's gradient, in the last without it."
    )
    header = ["C", "head", "time / floor", "MiB above W", "MiB above W and dW"]
    name = "heads" if args.classes == list(CLASSES) else "heads_" + "_".join(args.classes)
    _harness.report(name, "Margin heads, forward and backward, batch 128, d 512, float32", header, table, args, notes)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    main()
