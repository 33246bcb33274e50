"""Every operator against torch.nn.Conv2d: forward and backward, eager and compiled, and peak memory.

3×3 convolutions of 64 channels on 32², 128 on 16² and 256 on 8², batch 32, with a bias. ``--eager`` leaves the compiled columns
and memory out, ``--compiled`` measures angles and radii compiled, ``--peaks`` memory, ``--modes`` channels-last and bfloat16
autocast, ``--network`` a compiled CNN-9 of operators against the compiled convolutional one.
"""

import functools
import statistics
import sys
from collections.abc import Callable, Collection

import torch
from _harness import make_parser, measure_peak, peak_memory, time_interleaved, write_report
from torch import Tensor, nn

from hypersphere import angular, models, operators
from hypersphere.operators import magnitudes

SHAPES = [(64, 32), (128, 16), (256, 8)]
BATCH = 32
EAGER_AIMS = {"SphereConv2d": 1.10, "TanhConv2d, learned radius": 1.25}
EAGER_AIMS |= {f"SphereConv2d, {g}": 1.30 for g in ("linear", "sigmoid", "square cosine")}


COMPILED_AIMS = dict.fromkeys(EAGER_AIMS, 1.10) | {"TanhConv2d, learned radius": 1.25}
MEMORY_AIMS = {"SphereConv2d": 1.25}


def make_layers(channels: int, all_of_them: bool = True) -> dict[str, nn.Module]:
    """The text's operators, and with ``all_of_them`` other angles and a learned radius as well."""
    shape = (channels, channels, 3)
    kinds = ("Sphere", "Ball", "Tanh", "Linear", "Seg", "Log", "Mix")
    made: dict[str, nn.Module] = {"nn.Conv2d": nn.Conv2d(*shape, padding=1)}
    made |= {f"{kind}Conv2d": getattr(operators, f"{kind}Conv2d")(*shape, padding=1) for kind in kinds}
    if not all_of_them:  # compiling takes seconds a layer
        return made
    made["nn.Conv2d + BatchNorm2d"] = nn.Sequential(nn.Conv2d(*shape, padding=1), nn.BatchNorm2d(channels))
    for name, g in {
        "linear": angular.Linear(),
        "sigmoid": angular.Sigmoid(),
        "square cosine": angular.SquareCosine(),
    }.items():
        made[f"SphereConv2d, {name}"] = operators.SphereConv2d(*shape, padding=1, angular=g)
    learned = magnitudes.Tanh(learnable_radius=True)
    made["TanhConv2d, learned radius"] = operators.TanhConv2d(*shape, padding=1, magnitude=learned)
    return made


def make_training_step(
    layer: Callable[[Tensor], Tensor],
    parameters: list[Tensor],
    channels: int,
    size: int,
    memory_format: torch.memory_format = torch.contiguous_format,
    half: bool = False,
) -> Callable[[], None]:
    x = torch.randn(BATCH, channels, size, size).to(memory_format=memory_format).requires_grad_()
    grad = torch.randn(BATCH, channels, size, size).to(memory_format=memory_format)

    def step() -> None:
        for leaf in (x, *parameters):
            leaf.grad = None
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            y = layer(x)
        y.backward(grad.to(y.dtype))

    return step


def measure_ratios(
    channels: int, size: int, compiled: bool, rounds: int, names: Collection[str] | None = None
) -> dict[str, float]:
    made = make_layers(channels, all_of_them=not compiled or names is not None)
    made = {name: layer for name, layer in made.items() if names is None or name in names}
    torch._dynamo.reset()
    work = {
        name: make_training_step(torch.compile(layer) if compiled else layer, list(layer.parameters()), channels, size)
        for name, layer in made.items()
    }
    seconds = time_interleaved(work, rounds=rounds, warmup=2, min_seconds=0.1)
    return {name: value / seconds["nn.Conv2d"] for name, value in seconds.items()}


def measure_modes(rounds: int, channels: int = 64, size: int = 32) -> list[list[object]]:
    """Each layer against nn.Conv2d in the same mode."""
    found = []
    for layout, half in ((torch.channels_last, False), (torch.contiguous_format, True), (torch.channels_last, True)):
        made = {name: layer.to(memory_format=layout) for name, layer in make_layers(channels).items()}
        work = {n: make_training_step(m, list(m.parameters()), channels, size, layout, half) for n, m in made.items()}
        seconds = time_interleaved(work, rounds=rounds, warmup=1)
        found.append({name: value / seconds["nn.Conv2d"] for name, value in seconds.items()})
    return [[name, *[column[name] for column in found]] for name in found[0]]


def measure_network(rounds: int) -> list[list[object]]:
    """Measure a CNN-9 on 32×32 pictures, eager and compiled: forward and backward of a cross-entropy, batch 32."""
    nets = {
        "CNN-9": models.cnn9(10),
        "CNN-9 of SphereConv": models.cnn9(10, operator=operators.Operator()),
        "CNN-9 of SphereConv, linear": models.cnn9(10, operator=operators.Operator(angular=angular.Linear())),
    }
    x, y = torch.randn(BATCH, 3, 32, 32), torch.randint(0, 10, (BATCH,))

    def step(net: nn.Module, run: Callable[[Tensor], Tensor]) -> None:
        net.zero_grad()
        nn.functional.cross_entropy(run(x), y).backward()

    columns = []
    for compiled in (False, True):
        torch._dynamo.reset()
        work = {n: functools.partial(step, net, torch.compile(net) if compiled else net) for n, net in nets.items()}
        seconds = time_interleaved(work, rounds=rounds, warmup=2)
        columns.append({name: value / seconds["CNN-9"] for name, value in seconds.items()})
    aims = {"CNN-9": "–"}
    return [[name, columns[0][name], columns[1][name], aims.get(name, "1.08")] for name in nets]


def measure_compiled(rounds: int) -> list[list[object]]:
    """Measure the layers that have a goal, compiled, relative to the compiled nn.Conv2d."""
    names = ["nn.Conv2d", *COMPILED_AIMS]
    found = [measure_ratios(channels, size, True, rounds, names) for channels, size in SHAPES]
    return [[name, *[column[name] for column in found], COMPILED_AIMS.get(name, "–")] for name in names]


def measure_peaks() -> list[list[object]]:
    """Measure peak memory as the median of three fresh processes, because it varies between processes."""
    names = ["nn.Conv2d", *EAGER_AIMS]
    used = {name: statistics.median(peak_memory(sys.argv[0], name, "64") for _ in range(3)) for name in names}
    return [[n, used[n], used[n] / used["nn.Conv2d"], MEMORY_AIMS.get(n, "–")] for n in names]


def print_memory(name: str, channels: str) -> None:
    size = dict(SHAPES)[int(channels)]
    layer = make_layers(int(channels))[name]
    step = make_training_step(layer, list(layer.parameters()), int(channels), size)
    print(measure_peak(step))


def main() -> None:
    p = make_parser(__doc__)
    p.add_argument("--modes", action="store_true", help="channels-last and bfloat16 autocast, eager, 64@32²")
    p.add_argument("--network", action="store_true", help="a whole CNN-9, eager and compiled")
    p.add_argument("--compiled", action="store_true", help="angles and radii, compiled")
    p.add_argument("--peaks", action="store_true", help="memory of angles and radii, eager, 64@32²")
    p.add_argument("--eager", action="store_true", help="leave the compiled columns and memory out")
    args = p.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    if args.memory:
        print_memory(*args.memory)
        return
    suffix = "" if args.threads == 2 else f"_{args.threads}_thread"
    if args.compiled:
        header = ["layer", *[f"{c}@{s}² compiled" for c, s in SHAPES], "aim"]
        notes = "Ratios to the compiled `nn.Conv2d`, 3×3, batch 32, forward and backward."
        write_report(
            f"operators_compiled{suffix}", "Operators, compiled", header, measure_compiled(args.rounds), args, notes
        )
        return
    if args.peaks:
        header = ["layer", "MiB", "of nn.Conv2d", "aim"]
        how = "the median of 3 processes."
        notes = (
            "What resident memory rises by in one forward and backward pass, 3×3, 64 channels on 32², batch 32, eager."
        )
        write_report(f"operators_memory{suffix}", "Memory of operators", header, measure_peaks(), args, notes, how)
        return
    if args.modes:
        header = ["layer", "channels-last", "bf16 autocast", "channels-last, bf16 autocast"]
        notes = (
            "Ratios to `nn.Conv2d` in the same mode, 3×3, 64 channels on 32², batch 32, forward and backward, eager."
        )
        write_report(
            f"operators_modes{suffix}", "Operators in other modes", header, measure_modes(args.rounds), args, notes
        )
        return
    if args.network:
        header = ["network", "eager", "compiled", "aim, compiled"]
        notes = "Ratios to the convolutional network in the same column: a training step on 32 pictures of 32×32, 10 classes."
        write_report(
            f"operators_network{suffix}", "A CNN-9 of operators", header, measure_network(args.rounds), args, notes
        )
        return
    names = list(make_layers(4))
    columns = [(c, s, compiled) for c, s in SHAPES for compiled in ((False,) if args.eager else (False, True))]
    measured = [measure_ratios(*column, args.rounds) for column in columns]
    peaks = {} if args.eager else {name: peak_memory(sys.argv[0], name, "64") for name in names}
    header = ["layer", *[f"{c}@{s}² {'compiled' if compiled else 'eager'}" for c, s, compiled in columns], "aim, eager"]
    header += ["memory 64@32²", "MiB"] if peaks else []
    rows: list[list[object]] = []
    for name in names:
        used = [peaks[name] / peaks["nn.Conv2d"], peaks[name]] if peaks else []
        rows.append([name, *[m.get(name, "–") for m in measured], EAGER_AIMS.get(name, "–"), *used])
    notes = (
        "Times are ratios to `nn.Conv2d` in the same column: one forward and backward pass of a 3×3 convolution "
        "with bias, batch 32, float32. Memory is what resident memory rises by in one such pass, in a fresh process."
    )
    name = "operators_eager" if args.eager else "operators"
    write_report(f"{name}{suffix}", "Operators against nn.Conv2d", header, rows, args, notes)


if __name__ == "__main__":
    main()
