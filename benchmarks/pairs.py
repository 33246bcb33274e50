"""Losses over pairs and proxies, with their gradients: time against pytorch-metric-learning, memory of large batches.

python benchmarks/pairs.py            # print
python benchmarks/pairs.py --record   # also write benchmarks/reports/pairs.md and pairs_memory.md
"""

import sys
import warnings
from collections.abc import Callable

import torch
from _harness import make_parser, measure_peak, peak_memory, time_interleaved, write_report
from torch import Tensor, nn

from hypersphere.objectives import (
    HUG,
    Alignment,
    Circle,
    Contrastive,
    KoLeo,
    NTXent,
    ProxyAnchor,
    SigLIP,
    SoftTriple,
    SupCon,
    Triplet,
    Uniformity,
)

BATCH, DIM, CLASSES, PER_CLASS = 1024, 512, 256, 4
SMALL = 256  # the batch at which the peer's NT-Xent still fits into memory
LARGE, LARGE_DIM = 32768, 128  # memory grows with the pairs; a smaller dimension only saves time
OURS: dict[str, Callable[[], nn.Module]] = {
    "contrastive": lambda: Contrastive(power=1),
    "triplet, all": lambda: Triplet(0.05),
    "triplet, hard": lambda: Triplet(0.05, "hard"),
    "triplet, semihard": lambda: Triplet(0.05, "semihard"),
    "SupCon": SupCon,
    "NT-Xent": NTXent,
    f"NT-Xent, batch {SMALL}": NTXent,
    "circle": lambda: Circle(gradient="detached"),
    "Proxy-Anchor": lambda dim=DIM: ProxyAnchor(dim, CLASSES),
    "SoftTriple": lambda dim=DIM: SoftTriple(dim, CLASSES, tau=0.0),
    "SigLIP": SigLIP,
    "KoLeo": KoLeo,
    "alignment": Alignment,
    "uniformity": Uniformity,
    "HUG": lambda dim=DIM: HUG(dim, CLASSES),
}


def list_peers() -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
    """Return the same losses of pytorch-metric-learning with the same settings."""
    from pytorch_metric_learning import losses, miners

    def make_mined(miner: nn.Module) -> Callable[[Tensor, Tensor], Tensor]:
        loss = losses.TripletMarginLoss(0.05)

        def both(x: Tensor, y: Tensor) -> Tensor:
            return loss(x, y, miner(x, y))

        return both

    return {
        "contrastive": losses.ContrastiveLoss(),
        "triplet, all": losses.TripletMarginLoss(0.05),
        "triplet, hard": make_mined(miners.BatchHardMiner()),
        "triplet, semihard": make_mined(miners.TripletMarginMiner(0.05, "semihard")),
        "SupCon": losses.SupConLoss(),
        f"NT-Xent, batch {SMALL}": losses.NTXentLoss(),
        "circle": losses.CircleLoss(),
        "Proxy-Anchor": losses.ProxyAnchorLoss(CLASSES, DIM),
        "SoftTriple": losses.SoftTripleLoss(CLASSES, DIM),
    }


def make_step(loss: Callable[[Tensor, Tensor], Tensor], n: int, dim: int = DIM) -> Callable[[], None]:
    """Return a forward and backward pass on a batch of P overlapping classes × K samples."""
    torch.manual_seed(0)
    y = torch.arange(n // PER_CLASS).repeat(PER_CLASS)
    x = (torch.randn(n // PER_CLASS, dim)[y] + 2 * torch.randn(n, dim)).requires_grad_()
    y = y % CLASSES if isinstance(loss, nn.Module) and hasattr(loss, "num_classes") else y

    def run() -> None:
        x.grad = None
        loss(x, y).backward()

    return run


def compute_gram(x: Tensor, y: Tensor) -> Tensor:
    """Compute the floor: the mean square of all cosines."""
    x = nn.functional.normalize(x)
    return (x @ x.T).square().mean()


def measure_times(args) -> list[list[object]]:
    rows, theirs = [], list_peers()
    for name, make in OURS.items():
        n = SMALL if name.endswith(str(SMALL)) else BATCH
        work = {"floor": make_step(compute_gram, n), "ours": make_step(make(), n)}
        if name in theirs:
            work["PML"] = make_step(theirs[name], n)
        seconds = time_interleaved(work, args.rounds)
        other = seconds.get("PML")
        row = [name, seconds["ours"] * 1e3, seconds["ours"] / seconds["floor"]]
        rows.append([*row, *(["–", "–"] if other is None else [other * 1e3, other / seconds["ours"]])])
    return rows


def measure_memories() -> list[list[object]]:
    rows = []
    for name in [name for name in OURS if not name.endswith(str(SMALL))]:
        small = peak_memory(__file__, "ours", name, str(BATCH))
        theirs = "–"
        if name in list_peers():
            theirs = peak_memory(__file__, "PML", name, str(BATCH))
        rows.append([name, small, theirs, peak_memory(__file__, "ours", name, str(LARGE))])
        print(*rows[-1], flush=True)
    return rows


def report_times(args) -> None:
    notes = (
        f"Batch {BATCH} ({BATCH // PER_CLASS} classes × {PER_CLASS}), d = {DIM}, float32, forward and backward. "
        "The floor is the mean square of all cosines with its gradient. PML is pytorch-metric-learning at the same "
        f"setting; its NT-Xent holds positive × negative pairs, 13 GB at {BATCH}, and is compared at {SMALL} only."
    )
    header = ["loss", "ms", "ratio to the floor", "PML ms", "PML / ours"]
    write_report(
        "pairs",
        "Losses over pairs and proxies against pytorch-metric-learning",
        header,
        measure_times(args),
        args,
        notes,
    )


def main() -> None:
    options = make_parser(__doc__)
    options.set_defaults(threads=1, rounds=5)
    options.add_argument("--part", choices=["time", "memory", "both"], default="both")
    args = options.parse_args()
    torch.set_num_threads(args.threads)
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    if args.memory:
        whose, name, n = args.memory
        dim = LARGE_DIM if int(n) == LARGE else DIM
        owns_rows = name in ("Proxy-Anchor", "SoftTriple", "HUG")
        loss = list_peers()[name] if whose == "PML" else OURS[name](dim) if owns_rows else OURS[name]()
        for chunk in (16, "auto"):  # exclude the start-up memory of the libraries
            loss.chunk = chunk
            make_step(loss, 64, dim)()
        print(measure_peak(make_step(loss, int(n), dim)))
        return
    if args.part != "memory":
        report_times(args)
    if args.part == "time":
        return
    notes = (
        f"Rise of the peak in a fresh process; d = {DIM} for {BATCH} rows, {LARGE_DIM} for {LARGE} "
        f"({LARGE * LARGE_DIM // 2**18} MiB of features and as much of their gradient). All cosines of {LARGE} rows would "
        f"be {LARGE**2 // 2**18} MiB, and a plain implementation holds several such matrices."
    )
    header = ["loss", f"{BATCH} rows, MiB", f"PML {BATCH} rows, MiB", f"{LARGE} rows, MiB"]
    title = "Peak memory of losses over pairs and proxies, forward and backward"
    write_report("pairs_memory", title, header, measure_memories(), args, notes, how="one call each.")


if __name__ == "__main__":
    sys.exit(main())
