"""Measure the time of orthogonal maps, over-parameterized layers and a training step, compared with other libraries.

python benchmarks/orthogonal.py            # about four minutes on two cores
python benchmarks/orthogonal.py --record   # also write the dated reports
"""

import pathlib
import sys
import warnings
from collections.abc import Callable

import geoopt
import geotorch
import torch
from peft.tuners.oft.layer import OFTRotationModule
from torch import Tensor, nn
from torch.nn.utils import parametrizations

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))

from _floors import compute_dense_floor, compute_thin_floor, make_gradient_work, make_weight_work
from _harness import make_parser, time_interleaved, write_report

from hypersphere import orthogonal

Work = dict[str, Callable[[], object]]


def main() -> None:
    tables = {"maps": report_maps, "layers": report_layers, "training": report_training}
    p = make_parser(__doc__)
    p.add_argument("--only", nargs="+", choices=tables, default=list(tables))
    args = p.parse_args()
    torch.set_num_threads(args.threads)
    warnings.simplefilter("ignore")  # of the other libraries
    for name in args.only:
        tables[name](args)


def report_maps(args) -> None:
    sizes = (64, 256, 576, 1152)
    columns = {}
    for n in sizes:
        torch.manual_seed(0)
        rounds = args.rounds if n <= 576 else max(3, args.rounds // 2)
        columns[n] = time_interleaved(_make_map_work(n), rounds=rounds, min_seconds=0.02)
    names = list(columns[sizes[0]])
    rows = [[name, *[columns[n][name] / columns[n]["floor"] for n in sizes]] for name in names]
    rows[0] = ["floor, ms", *[1000 * columns[n]["floor"] for n in sizes]]
    notes = (
        "Forward and backward of one n×n matrix, as a ratio to the floor: R = 2(I − A)⁻¹ − I and its gradient by hand, without autograd. "
        "The optimizers' rows are one step from a given gradient."
    )
    write_report(
        "orthogonal_maps", "Ways to an orthogonal matrix", ["map", *[f"n = {n}" for n in sizes]], rows, args, notes
    )


def _make_map_work(n: int) -> Work:
    x, g = torch.randn(n, n) / n**0.5, torch.randn(n, n)
    work: Work = {"floor": lambda: compute_dense_floor(x, g)}
    for name in ("cayley", "gram_schmidt", "householder", "lowdin", "exponential", "newton_schulz"):
        work[name] = make_gradient_work(getattr(orthogonal, name), x, g)
    work["cayley, 4 terms"] = make_gradient_work(lambda y: orthogonal.cayley(y, terms=4), x, g)
    work["OGD step"] = _make_optimizer_step(lambda p: orthogonal.OGD([p], lr=0.01), n, g)
    work["OGD step, exact"] = _make_optimizer_step(lambda p: orthogonal.OGD([p], lr=0.01, exact=True), n, g)
    work["bare linalg.qr"] = make_gradient_work(lambda y: torch.linalg.qr(y)[0], x, g)
    work["bare linalg.solve"] = make_gradient_work(_compute_cayley, x, g)
    work["bare linalg.matrix_exp"] = make_gradient_work(lambda y: torch.linalg.matrix_exp((y - y.mT) / 2), x, g)
    for name, module in _make_square_peers(n).items():
        work[name] = make_weight_work(module, g)
    work["geoopt Stiefel step"] = _make_geoopt_step(n, g)
    return work


def report_layers(args) -> None:
    shapes = {(576, 64): None, (1152, 128): None}
    for d, neurons in shapes:
        torch.manual_seed(0)
        shapes[d, neurons] = time_interleaved(_make_layer_work(d, neurons), rounds=args.rounds, min_seconds=0.02)
    names = list(next(iter(shapes.values())))
    rows = [[name, *[times[name] / times["floor"] for times in shapes.values()]] for name in names]
    rows[0] = ["floor, ms", *[1000 * times["floor"] for times in shapes.values()]]
    notes = (
        "Weight of a layer R·V and the gradient of its parameters, as a ratio to the floor: one LU, two thin solves, the thin product that "
        "is the gradient, without autograd. Peers give R; the product with V is added."
    )
    write_report(
        "orthogonal_layers", "Over-parameterized layers", ["layer", *[f"{d}→{n}" for d, n in shapes]], rows, args, notes
    )


def _make_layer_work(d: int, neurons: int) -> Work:
    x, v, g = torch.randn(d, d) / d**0.5, torch.randn(neurons, d), torch.randn(neurons, d)
    work: Work = {"floor": lambda: compute_thin_floor(x, v, g)}
    for method in ("cayley", "gram_schmidt", "householder", "lowdin", "exponential", "ogd"):
        work[method] = make_weight_work(orthogonal.overparameterize(nn.Linear(d, neurons), method), g)
    for share in (False, True):
        layer = orthogonal.overparameterize(nn.Linear(d, neurons), blocks=d // 32, share_blocks=share)
        work["cayley, blocks of 32" + (", shared" if share else "")] = make_weight_work(layer, g)
    for name, module in _make_square_peers(d).items():
        work[name] = _make_product_work(module, v, g)
    work["peft OFT, blocks of 32"] = _make_product_work(_PeftOFT(d, 32), v, g)
    stiefel = geoopt.ManifoldParameter(torch.eye(d), manifold=geoopt.CanonicalStiefel())
    work["geoopt Stiefel, R·V and step"] = _make_geoopt_layer_step(stiefel, v, g)
    return work


def report_training(args) -> None:
    torch.manual_seed(0)
    images, labels = torch.randn(128, 3, 32, 32), torch.randint(100, (128,))
    work: Work = {"plain": _make_training_step(_make_cnn6(), images, labels)}
    for method in ("cayley", "gram_schmidt", "ogd"):
        work[f"OPT, {method}"] = _make_training_step(orthogonal.overparameterize(_make_cnn6(), method), images, labels)
    work["OPT, cayley, 4 blocks"] = _make_training_step(
        orthogonal.overparameterize(_make_cnn6(), blocks=lambda name, module: 1 if module.weight.shape[1] == 3 else 4),
        images,
        labels,
    )
    work["OPT, cayley, merged"] = _make_training_step(
        orthogonal.merge(orthogonal.overparameterize(_make_cnn6())), images, labels
    )
    times = time_interleaved(work, rounds=max(3, args.rounds // 2))
    rows = [[name, 1000 * t, t / times["plain"]] for name, t in times.items()]
    notes = "CNN-6 of table F.1 with batch normalization, a batch of 128 CIFAR-sized images, forward, backward and a step of momentum SGD."
    write_report("orthogonal_training", "A training step under OPT", ["training", "ms", "ratio"], rows, args, notes)


def _compute_cayley(x: Tensor) -> Tensor:
    a, eye = (x - x.mT) / 2, torch.eye(len(x))
    return torch.linalg.solve(eye - a, eye + a)


def _make_product_work(module: nn.Module, v: Tensor, g: Tensor) -> Callable[[], object]:
    parameters = [p for name, p in module.named_parameters() if name != "bias"]
    return lambda: torch.autograd.grad(v @ module.weight.mT, parameters, g, allow_unused=True)


def _make_square_peers(n: int) -> dict[str, nn.Module]:
    peers = {}
    for name in ("cayley", "matrix_exp", "householder"):
        peers[f"torch orthogonal, {name}"] = parametrizations.orthogonal(
            nn.Linear(n, n, bias=False), orthogonal_map=name
        )
    peers["torch orthogonal, default"] = parametrizations.orthogonal(nn.Linear(n, n, bias=False))
    for triv in ("cayley", "expm"):
        layer = nn.Linear(n, n, bias=False)
        geotorch.orthogonal(layer, "weight", triv=triv)
        peers[f"geotorch, {triv}"] = layer
    peers["peft OFT, exact"] = _PeftOFT(n, n, exact=True)
    peers["peft OFT, 5 terms"] = _PeftOFT(n, n)
    return peers


class _PeftOFT(nn.Module):
    """The rotation of peft as a dense matrix ``weight``."""

    def __init__(self, n: int, block: int, exact: bool = False):
        super().__init__()
        self.rotation = OFTRotationModule(n // block, block * (block - 1) // 2, block, n, use_cayley_neumann=not exact)
        nn.init.normal_(self.rotation.weight, std=0.01)

    @property
    def weight(self) -> Tensor:
        return self.rotation.get_weight()


def _make_optimizer_step(
    make: Callable[[nn.Parameter], torch.optim.Optimizer], n: int, g: Tensor
) -> Callable[[], object]:
    p = nn.Parameter(torch.eye(n))
    p.grad = g / n
    return make(p).step


def _make_geoopt_step(n: int, g: Tensor) -> Callable[[], object]:
    p = geoopt.ManifoldParameter(torch.eye(n), manifold=geoopt.CanonicalStiefel())
    p.grad = g / n
    return geoopt.optim.RiemannianSGD([p], lr=0.01).step


def _make_geoopt_layer_step(p: nn.Parameter, v: Tensor, g: Tensor) -> Callable[[], object]:
    optimizer = geoopt.optim.RiemannianSGD([p], lr=1e-4)

    def work() -> None:
        (p.grad,) = torch.autograd.grad(v @ p.mT, p, g)
        optimizer.step()

    return work


def _make_cnn6() -> nn.Module:
    def unit(inputs: int) -> list[nn.Module]:
        return [nn.Conv2d(inputs, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU()]

    stages = [[*unit(3 if i == 0 else 64), *unit(64), nn.MaxPool2d(2)] for i in range(3)]
    return nn.Sequential(
        *[m for stage in stages for m in stage], nn.Flatten(), nn.Linear(1024, 64), nn.ReLU(), nn.Linear(64, 100)
    )


def _make_training_step(model: nn.Module, images: Tensor, labels: Tensor) -> Callable[[], object]:
    rotations, others = orthogonal.group_parameters(model)
    optimizers = [torch.optim.SGD(others, lr=0.01, momentum=0.9, weight_decay=5e-4)]
    if rotations:
        optimizers.append(orthogonal.OGD(rotations, lr=0.01, momentum=0.9))

    def step() -> None:
        nn.functional.cross_entropy(model(images), labels).backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()

    return step


if __name__ == "__main__":
    main()
