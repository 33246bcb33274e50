"""The energy and its gradient against the usual ways to compute it, and what a regularizer adds to a training step.

python benchmarks/energy.py            # print
python benchmarks/energy.py --record   # also write benchmarks/reports/energy.md
python benchmarks/energy.py --threads 1 --training --record   # only what a regularizer adds to a step
"""

import sys
from collections.abc import Callable

import torch
from _harness import interleaved, measure_peak, parser, peak_memory, report
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
    """The floor: chunks of rows, value and gradient by hand in one pass, no symmetry, no care for close pairs."""

    @staticmethod
    def forward(ctx, x, half):
        total, grad = x.new_zeros(()), torch.empty_like(x)
        for start in range(0, len(x), CHUNK):
            cos = x[start : start + CHUNK] @ x.T
            own = torch.arange(len(cos))
            cos[own, own + start] = 0
            value = (1 - cos * cos).reciprocal_() if half else (2 - 2 * cos).reciprocal_()
            value[own, own + start] = 0
            total += value.sum()
            grad[start : start + CHUNK] = 4 * ((cos * value * value if half else value * value) @ x)
        ctx.save_for_backward(grad)
        return total

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0], None


def chunked(w: Tensor, half: bool) -> Tensor:
    return _Chunked.apply(F.normalize(w, dim=1), half)


def gram(w: Tensor, half: bool) -> Tensor:
    x = F.normalize(w, dim=1)
    cos = x @ x.T
    cos = cos - torch.diag(cos.diagonal())
    return ((1 - cos * cos) if half else (2 - 2 * cos)).reciprocal().sum()


def distances(w: Tensor, half: bool) -> Tensor:
    x = F.normalize(w, dim=1)
    x = torch.cat([x, -x]) if half else x
    d = torch.cdist(x, x) + torch.eye(len(x)) * 1e6
    return d.pow(-2).sum()


def ours(w: Tensor, half: bool) -> Tensor:
    return hyperspherical_energy(w, half_space=half)


WAYS: dict[str, Callable[[Tensor, bool], Tensor]] = {
    "chunked by hand": chunked,
    "this library": ours,
    "Gram": gram,
    "cdist": distances,
}


def work(way: str, n: int, half: bool) -> Callable[[], None]:
    w = torch.randn(n, DIM, requires_grad=True)

    def run() -> None:
        w.grad = None
        WAYS[way](w, half).backward()

    return run


def energies(args) -> list[list[object]]:
    rows = []
    for half in (False, True):
        for n in (64, 512, 4096):
            ways = {way: work(way, n, half) for way in WAYS if not (half and n == 4096 and way == "cdist")}
            seconds = interleaved(ways, min(args.rounds, 3) if n == 4096 else args.rounds, min_seconds=0.02)
            for way, taken in seconds.items():
                memory = peak_memory(__file__, way, str(n), str(int(half))) if n == 4096 else "–"
                name = "concatenation, cdist" if half and way == "cdist" else way
                rows.append(
                    ["half" if half else "full", n, name, taken * 1e3, taken / seconds["chunked by hand"], memory]
                )
    return rows


def cnn9() -> nn.Sequential:
    """Table D.1 with batch normalization, ten classes."""
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


def steps(args) -> list[list[object]]:
    """The regulariser's own work, forward, backward and ``step()``, over one plain training step of the same network."""
    torch.manual_seed(0)
    net, x, y = cnn9(), torch.randn(128, 3, 32, 32), torch.randint(10, (128,))
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)

    def plain() -> None:
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()

    def alone(regularizer: nn.Module) -> Callable[[], None]:
        def run() -> None:
            regularizer().backward()  # onto the gradients of the step
            if isinstance(regularizer, CoMHE):
                regularizer.step()

        return run

    plain()
    parts = {name: alone(make(net)) for name, make in REGULARIZERS.items() if make is not None}
    often = dict.fromkeys(parts, 1) | dict.fromkeys([name for name in parts if name.startswith("AP")], 10)
    works = {name: lambda run=run, k=often[name]: [run() for _ in range(k)] for name, run in parts.items()}
    seconds = interleaved(works | {"none": plain}, args.rounds, min_seconds=0.2)  # ten where an update comes every ten
    step, taken = seconds["none"], {name: seconds[name] / often[name] for name in parts}
    return [
        ["none", step * 1e3, "–"],
        *[[name, each * 1e3, f"+{100 * each / step:.1f} %"] for name, each in taken.items()],
    ]


def main() -> None:
    p = parser(__doc__)
    p.add_argument("--training", action="store_true", help="only what a regularizer adds to a training step")
    args = p.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    if args.memory:
        way, n, half = args.memory
        work(way, 64, bool(int(half)))()  # the libraries' own start-up is not the energy's memory
        print(measure_peak(work(way, int(n), bool(int(half)))))
        return
    if not args.training:
        header = ["space", "N", "way", "ms", "ratio to the floor", "MiB"]
        notes = f"E_2 with its gradient, d = {DIM}. Memory is the rise of the peak in a fresh process."
        report("energy", "Hyperspherical energy, value and gradient", header, energies(args), args, notes)
    notes = "CNN-9 of table D.1, batch 128 of 32 × 32, ten classes. Each row: the regulariser's own forward, backward and step."
    report(
        f"energy_training_{args.threads}",
        "What a regularizer adds to a training step",
        ["regulariser", "ms", "of a step"],
        steps(args),
        args,
        notes,
    )


if __name__ == "__main__":
    sys.exit(main())
