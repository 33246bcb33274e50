"""Margin heads, forward and backward: time against dense F.cross_entropy(s·cos), memory in a fresh process.

Batch 128, d = 512, float32, C = 10 to 1M, for the presets, the heads published since, sub-centers, and
pytorch-metric-learning. Each row names its aim, where it has one.
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
CLASSES = {"10": 10, "100": 100, "1k": 1_000, "10k": 10_000, "100k": 100_000, "1M": 1_000_000}
PLAIN = ["Softmax", "LSoftmax", "WSoftmax", "SSoftmax", "ASoftmax", "AMSoftmax", "ArcFace"]
SINCE = ["SphereFaceR", "AdaFace", "MagFace", "ElasticFace", "AdaCos", "UniFace"]
HOOKED = ["GASoftmax", "CurricularFace", "MVSoftmax", "SphereFace2"]
PRESETS = [*PLAIN, *SINCE, *HOOKED]
PEERS = {
    "PML NormalizedSoftmax": ("NormalizedSoftmaxLoss", {}),
    "PML SphereFace": ("SphereFaceLoss", {}),
    "PML CosFace": ("CosFaceLoss", {}),
    "PML ArcFace": ("ArcFaceLoss", {}),
    "PML SubCenterArcFace k=3": ("SubCenterArcFaceLoss", {"sub_centers": 3}),
}
# At 1M a dense head needs more than 8 GiB, so only heads of different kinds are measured.
LARGE = ["SSoftmax", "ASoftmax", "GASoftmax", "ArcFace", "PML CosFace"]


class Floor(nn.Module):
    """Hand-written reference: normalize, multiply, cross-entropy."""

    def __init__(self, classes: int):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(classes, DIM) * DIM**-0.5)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(30.0 * F.linear(F.normalize(x), F.normalize(self.weight)), y)


def get_aim(size: str, name: str) -> str:
    """Return the goal of a row: the largest ratio to the floor, or PML for heads that should not be slower than that library."""
    if name == "ArcFace k=3":
        return {"1k": "1.8", "100k": "1.25"}.get(size, "PML")
    if name == "GASoftmax" and size == "1k":
        return "1.3"
    if name in (*PLAIN, *SINCE, *HOOKED) and size == "100k":
        return "0.5"
    if name in PLAIN and size in ("10", "100", "1k"):
        return "1.05"
    return "1.10" if name in (*SINCE, "CurricularFace", "MVSoftmax") and size == "1k" else "–"


def make_head(name: str, classes: int) -> nn.Module:
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


def run_step(head: nn.Module, x: torch.Tensor, y: torch.Tensor) -> None:
    head.zero_grad(set_to_none=True)
    head(x.detach().requires_grad_(), y).backward()


def run_step_and_free(head: nn.Module, x: torch.Tensor, y: torch.Tensor) -> None:
    run_step(head, x, y)
    head.zero_grad(set_to_none=True)  # free the gradient while other heads are measured


def draw_batch(classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(BATCH, DIM, generator=generator), torch.randint(0, classes, (BATCH,), generator=generator)


def list_names(size: str) -> list[str]:
    return LARGE if size == "1M" else [*PRESETS, "ArcFace k=3", "ArcFace bf16", *PEERS]


def measure_ratios(size: str, rounds: int, chosen: list[str]) -> dict[str, float]:
    """Return times relative to the floor, in interleaved runs; at 1M only two heads fit into memory at a time."""
    classes = CLASSES[size]
    x, y = draw_batch(classes)
    floor = make_head("floor", classes)
    found = {}
    groups = [chosen] if classes <= 100_000 else [[name] for name in chosen]
    for group in groups:
        work: dict[str, Callable[[], object]] = {"floor": functools.partial(run_step_and_free, floor, x, y)}
        work |= {name: functools.partial(run_step_and_free, make_head(name, classes), x, y) for name in group}
        seconds = _harness.time_interleaved(
            work, rounds, warmup=int(classes < 1_000_000), min_seconds=0.02 if classes <= 10_000 else 0.0
        )
        found |= {name: seconds[name] / seconds["floor"] for name in group}
        del work
        gc.collect()
    return found


def measure_memory(name: str, classes: int) -> float:
    """Return the peak memory above the weight, including its gradient.

    A smaller head runs first to load code and libraries. It has enough classes to be processed in chunks as well.
    """
    run_step(make_head(name, 5_000), *draw_batch(5_000))
    head, (x, y) = make_head(name, classes), draw_batch(classes)
    gc.collect()
    return _harness.measure_peak(lambda: run_step(head, x, y))


def measure_rows(size: str, rounds: int, chosen: list[str]) -> list[list[object]]:
    classes = CLASSES[size]
    times = {"floor": 1.0, **measure_ratios(size, rounds, chosen)}
    lines: list[list[object]] = []
    for name, ratio in times.items():
        peak = _harness.peak_memory(__file__, name, str(classes)) if classes >= 10_000 else float("nan")
        gradient = classes * DIM * 4 / 2**20 * (3 if "k=3" in name else 1)
        shown = ["–", "–"] if classes < 10_000 else [f"{peak:.0f}", f"{max(peak - gradient, 0):.0f}"]
        lines.append([size, name, ratio, get_aim(size, name), *shown])
    return lines


def main() -> None:
    p = _harness.make_parser(__doc__)
    p.add_argument("--classes", nargs="+", default=list(CLASSES), choices=list(CLASSES))
    p.add_argument("--heads", nargs="+", default=None, help="heads to measure (default: all)")
    args = p.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(args.threads)
    if args.memory:
        print(measure_memory(args.memory[0], int(args.memory[1])))
        return
    table = []
    for size in args.classes:
        rounds = {"100k": min(args.rounds, 2), "1M": 1}.get(size, args.rounds)
        table += measure_rows(size, rounds, args.heads or list_names(size))
    notes = (
        "Time is CPU time over dense `F.cross_entropy(s·cos)` in the same run; the aim is an upper bound of it. Memory is the\n"
        "peak in a fresh process above the weight: in the last column but one with the weight's gradient, in the last without."
    )
    header = ["C", "head", "time / floor", "aim", "MiB above W", "MiB above W and dW"]
    name = "heads" if args.classes == list(CLASSES) else "heads_" + "_".join(args.classes)
    name += "" if args.threads == 2 else f"_{args.threads}_thread"
    _harness.write_report(
        name, "Margin heads, forward and backward, batch 128, d 512, float32", header, table, args, notes
    )


if __name__ == "__main__":
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    main()
