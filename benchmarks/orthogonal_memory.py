"""Measure the memory of fine-tuning: POET and AdamW on all weights; quantized weights in pieces and dequantized as a whole.

python benchmarks/orthogonal_memory.py --threads 1 --record
"""

import copy
import ctypes
import functools
from collections.abc import Callable

import torch
from _harness import make_parser, measure_peak, peak_memory, write_report
from torch import nn

from hypersphere.orthogonal import Int4Linear, Int8Linear, finetune
from hypersphere.orthogonal.finetuning import quantized_linear, rotated

NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Sequential(*[m for _ in range(6) for m in (nn.Linear(512, 512), nn.GELU())]), (4096, 512)),
    "convolution": (
        lambda: nn.Sequential(*[m for _ in range(4) for m in (nn.Conv2d(96, 96, 3, padding=1), nn.ReLU())]),
        (16, 96, 32, 32),
    ),
}
ARMS = ("AdamW", "POET, stored", "POET")
BASES = ("float32", "int8, whole", "int8", "int4, whole", "int4")


def train(kind: str, arm: str) -> float:
    """Return the MiB that tuning, the optimizer and two steps take beyond the network and its input."""
    make, shape = NETWORKS[kind]
    net, x = make(), torch.randn(shape)
    if arm == "POET, stored":  # what the layer did before: everything stays for the backward pass
        rotated.checkpoint = lambda function, *args, **_: function(*args)

    def work(net: nn.Module, x: torch.Tensor) -> None:
        if arm != "AdamW":
            finetune(net, arm.split(",")[0].lower(), block=64, classifier=False)
        optimizer = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=1e-4, foreach=False)
        for _ in range(2):
            optimizer.zero_grad()
            net(x).square().mean().backward()
            optimizer.step()

    work(copy.deepcopy(net), x[:1])  # what the libraries import and allocate once
    return measure_peak(lambda: work(net, x))


def tune_quantized(base: str) -> float:
    """Return the MiB that one forward and backward pass of one tuned layer 4096→4096 take, 16 inputs."""
    layer = nn.Linear(4096, 4096, bias=False).requires_grad_(False)
    kind = {"float32": None, "int8": Int8Linear, "int4": Int4Linear}[base.split(",")[0]]
    tuned = layer if kind is None else kind.of(layer)
    if base.endswith("whole"):
        quantized_linear.MAX_DECODED_NUMBERS = 2**40
    if kind is not None:
        del layer
    net = finetune(nn.Sequential(tuned), block=32, classifier=False)
    x = torch.randn(16, 4096, requires_grad=True)
    warm = finetune(nn.Sequential((kind or Int8Linear).of(nn.Linear(64, 64))), block=32, classifier=False)
    warm(torch.randn(2, 64, requires_grad=True)).sum().backward()
    return measure_peak(lambda: net(x).sum().backward())


def main() -> None:
    args = make_parser(__doc__).parse_args()
    torch.set_num_threads(args.threads)
    if args.memory:
        # Give every tensor its own pages, so that holes in the heap do not count as memory.
        ctypes.CDLL(None).mallopt(-3, 2**16)  # M_MMAP_THRESHOLD
        print({"train": train, "quantized": tune_quantized}[args.memory[0]](*args.memory[1:]))
        return
    measure = functools.partial(peak_memory, __file__)
    rows: list[list[object]] = []
    for kind in NETWORKS:
        found = {arm: measure("train", kind, arm) for arm in ARMS}
        weights = sum(p.numel() for p in NETWORKS[kind][0]().parameters()) * 4 / 2**20
        for arm, mib in found.items():
            rows.append([f"{kind}, weights {weights:.0f} MiB", arm, round(mib), f"{mib / found['AdamW']:.2f}"])
    whole = measure("quantized", "float32")
    for base in BASES:
        mib = whole if base == "float32" else measure("quantized", base)
        rows.append(["OFT on one layer 4096→4096 (64 MiB in float32)", base, round(mib), f"{mib / whole:.2f}"])
    notes = (
        "Networks: six Linear(512, 512) with GELU on 4,096 inputs; four Conv2d(96, 96, 3) with ReLU on 16 × 32 × 32 pixels; "
        "blocks of 64. Memory beyond the network and its input: tuning, optimizer, two steps. 'Stored' keeps everything for "
        "the backward pass, as before; POET now computes it again. Quantized: one forward and backward pass, 16 inputs; "
        "'whole' dequantizes the weight at once, otherwise at most 2¹⁸ numbers are in floating point at a time."
    )
    how = "peak of resident memory in a fresh process that returns freed tensors to the system, one run each."
    header = ["network", "arm", "MiB", "relative to the first"]
    write_report("orthogonal_memory", "Memory of fine-tuning", header, rows, args, notes, how)


if __name__ == "__main__":
    main()
