"""Measure the orthogonal maps that have a goal, relative to their floors; without other libraries, so it takes seconds.

python benchmarks/orthogonal_aims.py --threads 1 --record
"""

import torch
from _floors import compute_dense_floor, compute_thin_floor, make_gradient_work, make_weight_work
from _harness import make_parser, time_interleaved, write_report
from torch import nn

from hypersphere import orthogonal

AIMS = {
    ("cayley", 64): 1.10,
    ("cayley", 256): 1.10,
    ("lowdin", 576): 4.0,
    ("exponential", 576): 5.0,
    ("newton_schulz", 576): 8.0,
}
LAYER, LAYER_AIM = (1152, 128), 1.10


class _EmptyFunction(torch.autograd.Function):
    """An empty function with a hand-written gradient: the overhead of autograd."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def main() -> None:
    args = make_parser(__doc__).parse_args()
    torch.set_num_threads(args.threads)
    rows = []
    for n in sorted({n for _, n in AIMS}):
        torch.manual_seed(0)
        x, g = torch.randn(n, n) / n**0.5, torch.randn(n, n)
        work = {"floor": lambda x=x, g=g: compute_dense_floor(x, g)}
        work |= {name: make_gradient_work(getattr(orthogonal, name), x, g) for name, size in AIMS if size == n}
        work |= {"autograd alone": make_gradient_work(_EmptyFunction.apply, x, g)} if n == 64 else {}
        times = time_interleaved(work, rounds=args.rounds, min_seconds=0.02)
        rows += [
            [name, f"n = {n}", 1000 * times["floor"], times[name] / times["floor"], AIMS.get((name, n), "")]
            for name in list(work)[1:]
        ]
    torch.manual_seed(0)
    d, neurons = LAYER
    x, v, g = torch.randn(d, d) / d**0.5, torch.randn(neurons, d), torch.randn(neurons, d)
    layer = orthogonal.overparameterize(nn.Linear(d, neurons), start="normal")
    times = time_interleaved(
        {"floor": lambda: compute_thin_floor(x, v, g), "layer": make_weight_work(layer, g)}, rounds=args.rounds
    )
    rows.append(["layer R·V", f"{d}→{neurons}", 1000 * times["floor"], times["layer"] / times["floor"], LAYER_AIM])
    notes = (
        "Forward and backward; the floors are those of orthogonal_maps and orthogonal_layers, computed without autograd. "
        "“autograd alone” is a function that does nothing, called and differentiated: what any hand-written gradient adds."
    )
    write_report(
        f"orthogonal_aims_{args.threads}",
        "Orthogonal maps and their aims",
        ["map", "size", "floor, ms", "of the floor", "aim"],
        rows,
        args,
        notes,
    )


if __name__ == "__main__":
    main()
