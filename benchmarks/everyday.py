"""Measure small and everyday work: heads of few classes, small layers, inference of one picture, data checks, start of commands.

Times are CPU times relative to the baseline of the group, measured until the interval of the ratio is below 5 % or
``--seconds`` per group have passed. ``--compiled`` adds rows with ``torch.compile``.
"""

import functools
import io
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import _harness
import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F

from hypersphere import angular, models, objectives, operators
from hypersphere.config.calls import Call
from hypersphere.data import PicturePreprocessing
from hypersphere.data.media import decode_sample, find_medium
from hypersphere.energy import AnglePreservingProjection, CoMHE, RandomProjection, minimize_energy
from hypersphere.operators import magnitudes
from hypersphere.recognition import Embedder

Work = dict[str, Callable[[], object]]


class NormalizedSoftmax(nn.Module):
    """Hand-written cross-entropy of scaled cosines: the baseline of the heads."""

    def __init__(self, dim: int, classes: int):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(classes, dim) * dim**-0.5)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the mean loss."""
        return F.cross_entropy(30.0 * F.linear(F.normalize(x), F.normalize(self.weight)), y)


def make_head_work(classes: int, batch: int, dim: int, compiled: bool = False) -> Work:
    """Return forward and backward passes of heads; the baseline is always eager."""
    x, y = torch.randn(batch, dim), torch.randint(0, classes, (batch,))
    heads: dict[str, nn.Module] = {"baseline": NormalizedSoftmax(dim, classes)}
    heads |= {name: getattr(objectives, name)(dim, classes) for name in ("ArcFace", "CosFace", "AdaFace")}
    if classes >= 1000:
        heads["ArcFace, 3 sub-centers"] = objectives.ArcFace(dim, classes, sub_centers=3)
    run = {name: torch.compile(head) if compiled and name != "baseline" else head for name, head in heads.items()}

    def step(name: str) -> None:
        heads[name].zero_grad(set_to_none=True)
        run[name](x.detach().requires_grad_(), y).backward()

    return {name: functools.partial(step, name) for name in heads}


def make_linear_work(batch: int, inputs: int, outputs: int, training: bool) -> Work:
    """Return passes of SphereLinear and of ``nn.Linear``."""
    x, grad = torch.randn(batch, inputs), torch.randn(batch, outputs)
    layers: dict[str, nn.Module] = {
        "baseline": nn.Linear(inputs, outputs),
        "SphereLinear": operators.Linear(inputs, outputs),
        "SphereLinear, linear angle": operators.Linear(inputs, outputs, angular=angular.Linear()),
    }
    return {name: functools.partial(_run, layer, x, grad if training else None) for name, layer in layers.items()}


def make_conv_work(channels: int, size: int, kernel: int, groups: int) -> Work:
    """Return a SphereConv2d and an ``nn.Conv2d`` of one picture, without gradients."""
    x = torch.randn(1, channels, size, size)
    shape, options = (channels, channels, kernel), {"padding": kernel // 2, "groups": groups}
    layers = {"baseline": nn.Conv2d(*shape, **options), "SphereConv2d": operators.SphereConv2d(*shape, **options)}
    return {name: functools.partial(_run, layer, x, None) for name, layer in layers.items()}


def make_network_work(batch: int, training: bool) -> Work:
    """Return passes of CNN-9 with operators and with convolutions, 32×32 pixels."""
    x, grad = torch.randn(batch, 3, 32, 32), torch.randn(batch, 10)
    networks = {
        "baseline": models.cnn9(10),
        "SphereConv": models.cnn9(10, operator=operators.Operator()),
        "SphereConv, linear angle": models.cnn9(10, operator=operators.Operator(angular=angular.Linear())),
        "TanhConv": models.cnn9(10, operator=operators.Operator(magnitudes.Tanh())),
    }
    return {
        name: functools.partial(_run, net.train(training), x, grad if training else None)
        for name, net in networks.items()
    }


def _run(layer: nn.Module, x: Tensor, grad: Tensor | None) -> None:
    """Run a forward pass, and a backward pass if ``grad`` is given."""
    if grad is None:
        with torch.no_grad():
            layer(x)
        return
    layer.zero_grad(set_to_none=True)
    layer(x.detach().requires_grad_()).backward(grad)


def make_regularizer_work(batch: int) -> Work:
    """Return forward, backward and step of regularizers; the baseline is a training step of ResNet-32 without one."""
    net = models.resnet32(10)
    x, y = torch.randn(batch, 3, 32, 32), torch.randint(0, 10, (batch,))
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    regularizers = {
        "AP-CoMHE": CoMHE(net, AnglePreservingProjection(mode="unrolled")),
        "RP-CoMHE": CoMHE(net, RandomProjection()),
    }

    def train() -> None:
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()

    def regularize(name: str) -> None:  # adds to the gradients of the loss
        regularizers[name]().backward()
        regularizers[name].step()

    return {"baseline": train} | {name: functools.partial(regularize, name) for name in regularizers}


def make_check_work(height: int, width: int) -> Work:
    """Return decoding a JPEG picture in memory, and decoding and inspecting it as ``hypersphere data check`` does."""
    blocks = np.random.default_rng(0).integers(0, 255, (height // 8, width // 8, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(np.kron(blocks, np.ones((8, 8, 1), np.uint8))).save(file, "JPEG", quality=90)
    content = file.getvalue()
    picture = find_medium(content)
    return {
        "baseline": lambda: decode_sample(content, "picture.jpg"),
        "decode and inspect": lambda: picture.inspect(decode_sample(content, "picture.jpg")),
    }


def make_gallery(folder: pathlib.Path) -> list[str]:
    """Enroll ten people with a CNN-9 and return the arguments that identify one of them."""
    network = Call(models.cnn9, {"num_classes": None})
    Embedder(network.build(), PicturePreprocessing(size=(32, 32), channels=3), network).save(folder / "model")
    generator = np.random.default_rng(0)
    for person in range(10):
        (folder / "people" / f"p{person}").mkdir(parents=True)
        pixels = np.kron(generator.integers(0, 255, (4, 4, 3), dtype=np.uint8), np.ones((8, 8, 1), np.uint8))
        Image.fromarray(pixels).save(folder / "people" / f"p{person}" / "0.png")
    place = [str(folder / "people.db"), str(folder / "model")]
    command = [sys.executable, "-m", "hypersphere", "gallery", "enrol", *place, str(folder / "people")]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    picture = str(folder / "people" / "p3" / "0.png")
    return ["-m", "hypersphere", "gallery", "identify", *place, picture, "--threshold", "0.9"]


def measure_starts(folder: pathlib.Path, rounds: int = 4) -> list[list[object]]:
    """Return the least CPU seconds of several interleaved fresh interpreters; byte code is compiled beforehand."""
    identify, name_identify = make_gallery(folder), "hypersphere gallery identify, one picture"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    commands = {
        "import torch": ["-c", "import torch"],
        "import torch, hypersphere; ArcFace": ["-c", "import torch, hypersphere; hypersphere.ArcFace"],
        "import hypersphere": ["-c", "import hypersphere"],
        "hypersphere --version": ["-m", "hypersphere", "--version"],
        "hypersphere --help": ["-m", "hypersphere", "--help"],
        name_identify: identify,
    }
    best = dict.fromkeys(commands, float("inf"))
    for _ in range(rounds):
        for name, arguments in commands.items():
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL, env=environment)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            best[name] = min(best[name], spent)
    aims = {"hypersphere --version": "0.3 s", "hypersphere --help": "0.3 s"}
    aims |= {"import torch, hypersphere; ArcFace": "1.08 of import torch", name_identify: "1.3 of import torch"}
    torch_seconds = best["import torch"]
    return [
        ["start", name, f"{best[name]:.2f} s ({best[name] / torch_seconds:.2f})", aims.get(name, "–")] for name in best
    ]


GROUPS: dict[str, tuple[Callable[[], Work], dict[str, str]]] = {
    "heads, 10 classes, batch 16, d 64": (
        lambda: make_head_work(10, 16, 64),
        dict.fromkeys(("ArcFace", "CosFace", "AdaFace"), "1.2"),
    ),
    "heads, 1,000 classes, batch 128, d 512": (
        lambda: make_head_work(1000, 128, 512),
        {"ArcFace": "0.75", "CosFace": "0.75", "AdaFace": "0.75", "ArcFace, 3 sub-centers": "1.7"},
    ),
    "SphereLinear 16×64→64, training": (lambda: make_linear_work(16, 64, 64, True), {"SphereLinear": "3"}),
    "SphereLinear 16×64→64, inference": (
        lambda: make_linear_work(16, 64, 64, False),
        {"SphereLinear": "3", "SphereLinear, linear angle": "5"},
    ),
    "SphereLinear 128×512→512, training": (lambda: make_linear_work(128, 512, 512, True), {"SphereLinear": "1.5"}),
    "convolution 1×1, 64 channels, 16×16, inference": (lambda: make_conv_work(64, 16, 1, 1), {"SphereConv2d": "1.5"}),
    "depthwise 3×3, 64 channels, 16×16, inference": (lambda: make_conv_work(64, 16, 3, 64), {"SphereConv2d": "1.5"}),
    "CNN-9, batch 1, inference": (
        lambda: make_network_work(1, False),
        dict.fromkeys(("SphereConv", "SphereConv, linear angle", "TanhConv"), "1.25"),
    ),
    "regularizer, of a training step of ResNet-32, batch 128": (
        lambda: make_regularizer_work(128),
        {"AP-CoMHE": "0.03", "RP-CoMHE": "0.03"},
    ),
    "data check, JPEG of 128×128, of decoding": (lambda: make_check_work(128, 128), {"decode and inspect": "1.3"}),
    "data check, JPEG of 1200×1600, of decoding": (lambda: make_check_work(1200, 1600), {"decode and inspect": "1.3"}),
    "CNN-9, batch 32, training": (
        lambda: make_network_work(32, True),
        {"SphereConv": "1.08", "SphereConv, linear angle": "1.15", "TanhConv": "1.15"},
    ),
}
COMPILED_GROUPS: dict[str, tuple[Callable[[], Work], dict[str, str]]] = {
    "heads compiled, 10 classes, batch 16, d 64": (
        lambda: make_head_work(10, 16, 64, compiled=True),
        dict.fromkeys(("ArcFace", "CosFace", "AdaFace"), "0.9"),
    ),
    "heads compiled, 1,000 classes, batch 128, d 512": (
        lambda: make_head_work(1000, 128, 512, compiled=True),
        dict.fromkeys(("ArcFace", "CosFace", "AdaFace"), "0.8"),
    ),
}


def main() -> None:
    """Measure all groups, or the groups whose name contains one of the arguments."""
    p = _harness.make_parser(__doc__)
    p.add_argument("groups", nargs="*", help="measure only groups whose name contains one of these words")
    p.add_argument("--seconds", type=float, default=20.0, help="longest time per group, in seconds (%(default)s)")
    p.add_argument("--compiled", action="store_true", help="also measure heads with torch.compile")
    p.set_defaults(threads=1)
    args = p.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    rows: list[list[object]] = []
    groups = GROUPS | (COMPILED_GROUPS if args.compiled else {})
    for title, (make, aims) in groups.items():
        if args.groups and not any(word in title for word in args.groups):
            continue
        for name, ratio in _harness.compare(make(), "baseline", seconds=args.seconds).items():
            rows.append([title, name, str(ratio), aims.get(name, "–")])
            print(*rows[-1], sep=" | ", file=sys.stderr, flush=True)
    if not args.groups or "start" in args.groups:
        with tempfile.TemporaryDirectory() as folder:
            rows += measure_starts(pathlib.Path(folder))
    if not args.groups or "solver" in args.groups:
        start = time.process_time()
        minimize_energy(100, 3)
        rows.append(["solver", "minimize_energy(100, 3)", f"{time.process_time() - start:.2f} s", "2 s"])
    notes = (
        "Heads: forward and backward relative to hand-written cross-entropy of scaled cosines, eager. Layers: relative to the\n"
        "plain layer. Networks: relative to CNN-9 of convolutions. Regularizers: forward, backward and step of the regularizer\n"
        "alone, relative to a training step. Ratios are medians with 95 % intervals. Large products use oneDNN on this kind of\n"
        "processor (AMD, AVX-512), those of the baseline MKL; with MKL for both, heads of 1,000 classes take 0.91 to 0.95 and\n"
        "three sub-centers 2.7.\n\n"
        "Profiles of the rows that miss their goals:\n\n"
        "- Heads of ten classes take 230 to 380 µs, and the baseline 108: about 75 operations of 1 to 5 µs and 80 µs of\n"
        "  Python. No function except the engine of autograd (7 %) takes more than 4 %. An operation with a Python number takes\n"
        "  4.7 µs, one with two tensors 2.1.\n"
        "- In compiled heads of 1,000 classes the compiler generates the loops over logits and the gradients; eager heads are\n"
        "  faster.\n"
        "- 1×1 and depthwise convolutions take 26 and 44 µs; squares, their sums, their check, roots and the scaling are six\n"
        "  more operations of 2 to 5 µs. A depthwise operator also sums over the windows of every channel (27 µs).\n"
        "- CNN-9 for one picture, linear angle: arcsines of all outputs (13 % of the time); learned radius: exponentials of all\n"
        "  outputs (10 %).\n"
        "- CNN-9, training: passes over maps of the output's size. Scaling forward and back, squares and their sums take 8 % of a\n"
        "  step of SphereConv; roots, products and sums of the linear angle 14 %; exponentials and products of the radius 13 %.\n"
        "- Import: 1.04 on the same day with a load of 1.4, and 1.09 with a load of about 6. The operation for compiled heads\n"
        "  is defined at the first compilation, not at import.\n"
        "- CoMHE: 31 layers in sequence, with a few dozen operations on small matrices each.\n"
        "- `data check` of 1200×1600 (decoding 4.2 ms): copying the pixels 0.9 ms, the perceptual hash 0.4; of 128×128\n"
        "  (decoding 72 µs): 14 and 49 µs, and Python."
    )
    how = f"rounds until every interval is below 5 % or {args.seconds:g} s have passed."
    header = ["work", "row", "measured", "aim, at most"]
    _harness.write_report("everyday", "Small and everyday work", header, rows, args, notes, how)


if __name__ == "__main__":
    main()
