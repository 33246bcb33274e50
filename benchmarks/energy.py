"""Compare the energy and its gradient with other implementations, and measure the share of regularizers in a training step.

python benchmarks/energy.py            # print
python benchmarks/energy.py --record   # also write benchmarks/reports/energy.md
python benchmarks/energy.py --threads 1 --training --record   # only the regularizers
"""

import sys
from collections.abc import Callable

import torch
from _harness import make_parser, measure_peak, peak_memory, time_interleaved, write_report
from torch import Tensor, nn
from torch.nn import functional as F

from hypersphere.energy import (
    MHE,
    AdversarialProjection,
    AnglePreservingProjection,
    ChannelGroups,
    CoMHE,
    Penalty,
    RandomProjection,
    hyperspherical_energy,
    srip,
)
from hypersphere.geometry import orthonormality

DIM, CHUNK = 576, 512


class _Chunked(torch.autograd.Function):
    """The baseline: Σ 1/d² and its gradient in one pass over chunks of rows.

    The gradient with respect to row i is 4·Σ_j x_j/d_ij⁴ (half space: 4·Σ_j cos_ij·x_j/(1 − cos²_ij)²), which needs only the
    cosines of the chunk. It does not use the symmetry of the pairs, and has no protection for close pairs.
    """

    @staticmethod
    def forward(ctx, x, half):
        total, grad = x.new_zeros(()), torch.empty_like(x)
        for start in range(0, len(x), CHUNK):
            cos = x[start : start + CHUNK] @ x.T
            local = torch.arange(len(cos))
            cos[local, local + start] = 0
            value = (1 - cos * cos).reciprocal_() if half else (2 - 2 * cos).reciprocal_()
            value[local, local + start] = 0
            total += value.sum()
            grad[start : start + CHUNK] = 4 * ((cos * value * value if half else value * value) @ x)
        ctx.save_for_backward(grad)
        return total

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0], None


def compute_in_chunks(w: Tensor, half: bool) -> Tensor:
    """Return the sum of 1/d² with a hand-written gradient."""
    return _Chunked.apply(F.normalize(w, dim=1), half)


def compute_from_gram(w: Tensor, half: bool) -> Tensor:
    """Return the same from the whole Gram matrix."""
    x = F.normalize(w, dim=1)
    cos = x @ x.T
    cos = cos - torch.diag(cos.diagonal())
    return ((1 - cos * cos) if half else (2 - 2 * cos)).reciprocal().sum()


def compute_from_distances(w: Tensor, half: bool) -> Tensor:
    """Return the same with ``torch.cdist``; half space doubles the rows."""
    x = F.normalize(w, dim=1)
    x = torch.cat([x, -x]) if half else x
    d = torch.cdist(x, x) + torch.eye(len(x)) * 1e6
    return d.pow(-2).sum()


def compute_with_library(w: Tensor, half: bool) -> Tensor:
    """Return the mean energy of this library."""
    return hyperspherical_energy(w, half_space=half)


WAYS: dict[str, Callable[[Tensor, bool], Tensor]] = {
    "chunked by hand": compute_in_chunks,
    "this library": compute_with_library,
    "Gram": compute_from_gram,
    "cdist": compute_from_distances,
}


def make_work(way: str, n: int, half: bool) -> Callable[[], None]:
    """Return work that computes the energy of n random neurons and its gradient."""
    w = torch.randn(n, DIM, requires_grad=True)

    def run() -> None:
        w.grad = None
        WAYS[way](w, half).backward()

    return run


def measure_energies(args) -> list[list[object]]:
    """Return the rows of the table of energies."""
    rows = []
    for half in (False, True):
        for n in (64, 512, 4096):
            ways = {way: make_work(way, n, half) for way in WAYS if not (half and n == 4096 and way == "cdist")}
            seconds = time_interleaved(ways, min(args.rounds, 3) if n == 4096 else args.rounds, min_seconds=0.02)
            for way, taken in seconds.items():
                memory = peak_memory(__file__, way, str(n), str(int(half))) if n == 4096 else "–"
                name = "concatenation, cdist" if half and way == "cdist" else way
                rows.append(
                    ["half" if half else "full", n, name, taken * 1e3, taken / seconds["chunked by hand"], memory]
                )
    return rows


def cnn9() -> nn.Sequential:
    """Return CNN-9 of table D.1 with batch normalization and ten classes."""
    layers: list[nn.Module] = []
    channels = 3
    for width in (64, 128, 256):
        for _ in range(3):
            layers += [
                nn.Conv2d(channels, width, 3, padding=1, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(inplace=True),
            ]
            channels = width
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(256 * 16, 256), nn.ReLU(inplace=True), nn.Linear(256, 10))


REGULARIZERS: dict[str, Callable[[nn.Module], nn.Module] | None] = {
    "none": None,
    "half-space MHE": MHE,
    "full-space MHE": lambda net: MHE(net, half_space=False),
    "RP-CoMHE": lambda net: CoMHE(net, RandomProjection()),
    "AP-CoMHE (alternating)": lambda net: CoMHE(net, AnglePreservingProjection(mode="alternating")),
    "AP-CoMHE (unrolled)": lambda net: CoMHE(net, AnglePreservingProjection(mode="unrolled")),
    "Adv-CoMHE": lambda net: CoMHE(net, AdversarialProjection()),
    "Group CoMHE": lambda net: CoMHE(net, ChannelGroups()),
    "orthonormal": lambda net: Penalty(net, orthonormality),
    "SRIP": lambda net: Penalty(net, srip),
}


def measure_regularizers(args) -> list[list[object]]:
    """Return the time of each regularizer (forward, backward and ``step()``) relative to a training step without it."""
    torch.manual_seed(0)
    net, x, y = cnn9(), torch.randn(128, 3, 32, 32), torch.randint(10, (128,))
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)

    def plain() -> None:
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()

    def make_regularizer_work(regularizer: nn.Module) -> Callable[[], None]:
        def run() -> None:
            regularizer().backward()  # adds to the gradients of the step
            if isinstance(regularizer, CoMHE):
                regularizer.step()

        return run

    plain()
    parts = {name: make_regularizer_work(make(net)) for name, make in REGULARIZERS.items() if make is not None}
    # AP-CoMHE updates its basis every ten steps, so ten steps are measured together.
    repeats = dict.fromkeys(parts, 1) | dict.fromkeys([name for name in parts if name.startswith("AP")], 10)
    works = {name: lambda run=run, k=repeats[name]: [run() for _ in range(k)] for name, run in parts.items()}
    seconds = time_interleaved(works | {"none": plain}, args.rounds, min_seconds=0.2)
    step, taken = seconds["none"], {name: seconds[name] / repeats[name] for name in parts}
    return [
        ["none", step * 1e3, "–"],
        *[[name, part * 1e3, f"+{100 * part / step:.1f} %"] for name, part in taken.items()],
    ]


def main() -> None:
    p = make_parser(__doc__)
    p.add_argument("--training", action="store_true", help="measure only regularizers in a training step")
    args = p.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    if args.memory:
        way, n, half = args.memory
        make_work(way, 64, bool(int(half)))()  # initialize the libraries before memory is measured
        print(measure_peak(make_work(way, int(n), bool(int(half)))))
        return
    if not args.training:
        header = ["space", "N", "way", "ms", "ratio to the floor", "MiB"]
        notes = f"E_2 with its gradient, d = {DIM}. Memory is the rise of the peak in a fresh process."
        write_report("energy", "Hyperspherical energy, value and gradient", header, measure_energies(args), args, notes)
    notes = "CNN-9 of table D.1, batch 128 of 32 × 32, ten classes. Each row: forward, backward and step of the regularizer alone."
    write_report(
        f"energy_training_{args.threads}",
        "Time of a regularizer in a training step",
        ["regularizer", "ms", "of a step"],
        measure_regularizers(args),
        args,
        notes,
    )


if __name__ == "__main__":
    sys.exit(main())
