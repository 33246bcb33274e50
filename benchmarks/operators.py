"""Every operator against torch.nn.Conv2d: forward and backward, eager and compiled, and peak memory.

3×3 convolutions of 64 channels on 32², 128 on 16² and 256 on 8², batch 32, with a bias.
"""

import sys
from collections.abc import Callable

import torch
from _harness import interleaved, measure_peak, parser, peak_memory, report
from torch import Tensor, nn

from hypersphere import angular, operators
from hypersphere.operators import magnitudes

SHAPES = [(64, 32), (128, 16), (256, 8)]
BATCH = 32


def layers(channels: int, all_of_them: bool = True) -> dict[str, nn.Module]:
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


def training_step(
    layer: Callable[[Tensor], Tensor], parameters: list[Tensor], channels: int, size: int
) -> Callable[[], None]:
    x = torch.randn(BATCH, channels, size, size, requires_grad=True)
    grad = torch.randn(BATCH, channels, size, size)

    def step() -> None:
        for leaf in (x, *parameters):
            leaf.grad = None
        layer(x).backward(grad)

    return step


def ratios(channels: int, size: int, compiled: bool, rounds: int) -> dict[str, float]:
    made = layers(channels, all_of_them=not compiled)
    torch._dynamo.reset()
    work = {
        name: training_step(torch.compile(layer) if compiled else layer, list(layer.parameters()), channels, size)
        for name, layer in made.items()
    }
    seconds = interleaved(work, rounds=rounds, warmup=2, min_seconds=0.1)
    return {name: value / seconds["nn.Conv2d"] for name, value in seconds.items()}


def memory(name: str, channels: str) -> None:
    size = dict(SHAPES)[int(channels)]
    layer = layers(int(channels))[name]
    step = training_step(layer, list(layer.parameters()), int(channels), size)
    print(measure_peak(step))


def main() -> None:
    args = parser(__doc__).parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    if args.memory:
        memory(*args.memory)
        return
    names = list(layers(4))
    columns = [(c, s, compiled) for c, s in SHAPES for compiled in (False, True)]
    measured = [ratios(*column, args.rounds) for column in columns]
    peaks = {name: peak_memory(sys.argv[0], name, "64") for name in names}
    header = [
        "layer",
        *[f"{c}@{s}² {'compiled' if compiled else 'eager'}" for c, s, compiled in columns],
        "memory 64@32²",
        "MiB",
    ]
    rows: list[list[object]] = [
        [name, *[m.get(name, "–") for m in measured], peaks[name] / peaks["nn.Conv2d"], peaks[name]] for name in names
    ]
    notes = (
        "Times are ratios to `nn.Conv2d` in the same column: one forward and backward pass of a 3×3 convolution "
        "with bias, batch 32, float32. Memory is what resident memory rises by in one such pass, in a fresh process."
    )
    report("operators", "Operators against nn.Conv2d", header, rows, args, notes)


if __name__ == "__main__":
    main()
