"""Which objective to choose: every head and pair loss on unseen characters, people and speakers, at one budget.

    HYPERSPHERE_DATA=… python benchmarks/which_objective.py run --threads 1     # makes the rows that are missing
    python benchmarks/which_objective.py --record                               # the tables, from the rows

One network (SphereFace-4 of quarter width, batch normalization, 64 features), one optimizer (SGD, momentum 0.9, weight
decay 2e-3, cosine rate), 400 steps of 128. An arm is an objective at its usual setting; its rate, and where it has one
its scale, are chosen from a small grid by the EER on classes held out of training (200 steps, one seed). Then three seeds
are trained on all training classes and measured on classes that neither training nor the choice has seen. Arms named
``PML`` are pytorch-metric-learning's implementation of the same loss under the same protocol. Every finished run is a
row of ``reports/which_objective.jsonl`` and is not made again.
"""

import itertools
import json
import os
import pathlib
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from _harness import parser, report
from torch import Tensor, nn
from torch.nn import functional as F

import hypersphere as hs
from hypersphere import objectives as ob
from hypersphere.data import LFW, Affine, ClassBalancedSampler, InMemory, Loader, Omniglot

ROWS = pathlib.Path(__file__).parent / "reports" / "which_objective.jsonl"
STEPS, TUNING, BATCH, DIM, SEEDS = 400, 200, 128, 64, 3
RATES = (0.05, 0.2)


@dataclass(frozen=True)
class Arm:
    """An objective of ``(dim, classes, **setting)``; ``grid`` are the settings to choose from; ``pairs`` wants P×K batches."""

    build: Callable[..., nn.Module]
    grid: tuple[dict[str, Any], ...] = ({},)
    pairs: bool = False


def scaled(build: Callable[..., nn.Module], usual: float, **setting: Any) -> Arm:
    """An arm whose scale is the usual one, or 24, which suits small sets."""
    return Arm(build, tuple({**setting, "scale": s} for s in dict.fromkeys((usual, 24.0))))


def pair(loss: Callable[..., nn.Module], *grid: dict[str, Any]) -> Arm:
    """A loss over pairs, which has no classes."""
    return Arm(lambda dim, classes, **setting: loss(**setting), grid or ({},), pairs=True)


ARMS: dict[str, Arm] = {
    "Softmax": Arm(ob.Softmax),
    "LSoftmax m 2": Arm(lambda d, c, **s: ob.LSoftmax(d, c, m=2, annealing=ob.Annealing(100, 5), **s)),
    "SphereFace m 4": Arm(lambda d, c, **s: ob.SphereFace(d, c, m=4, annealing=ob.Annealing(100, 5), **s)),
    "SphereFace-R v1": scaled(lambda d, c, **s: ob.SphereFaceR(d, c, version="v1", **s), 30.0),
    "SphereFace-R v2": scaled(lambda d, c, **s: ob.SphereFaceR(d, c, version="v2", **s), 30.0),
    "SSoftmax": scaled(ob.SSoftmax, 30.0),
    "CosFace": scaled(ob.CosFace, 64.0, m=0.35),
    "ArcFace": scaled(ob.ArcFace, 64.0, m=0.5),
    "ArcFace, 3 sub-centres": scaled(lambda d, c, **s: ob.ArcFace(d, c, sub_centers=3, **s), 64.0, m=0.5),
    "ArcFace m 0.25": scaled(ob.ArcFace, 30.0, m=0.25),
    "CosFace m 0.2": scaled(ob.CosFace, 30.0, m=0.2),
    "AdaFace": scaled(ob.AdaFace, 64.0),
    "MagFace": scaled(ob.MagFace, 64.0),
    "CurricularFace": scaled(ob.CurricularFace, 64.0),
    "MV-Softmax": scaled(ob.MVSoftmax, 32.0),
    "ElasticFace": scaled(ob.ElasticFace, 64.0),
    "AdaCos": Arm(ob.AdaCos),
    "SphereFace2": scaled(ob.SphereFace2, 40.0),
    "UniFace": scaled(ob.UniFace, 64.0),
    "fixed prototypes": scaled(lambda d, c, **s: ob.PrototypeSoftmax(d, c, prototypes=spread(c, d), **s), 30.0),
    "Contrastive": pair(ob.Contrastive),
    "Triplet semi-hard": pair(ob.Triplet, {"mining": "semihard"}),
    "Triplet hard": pair(ob.Triplet, {"mining": "hard"}),
    "SupCon": pair(ob.SupCon),
    "NT-Xent": pair(ob.NTXent),
    "Circle": pair(ob.Circle),
    "HUG": pair(ob.HUG),
    "Proxy-Anchor": Arm(ob.ProxyAnchor),
    "SoftTriple": Arm(ob.SoftTriple),
}


def peers() -> dict[str, Arm]:
    """The same losses of pytorch-metric-learning; margins in degrees there."""
    from pytorch_metric_learning import losses as pml

    def classes(build: Callable[..., nn.Module], **more: Any) -> Callable[..., nn.Module]:
        return lambda d, c, scale, **s: build(num_classes=c, embedding_size=d, scale=scale, **more)

    return {
        "PML CosFace": scaled(classes(pml.CosFaceLoss, margin=0.35), 64.0),
        "PML ArcFace": scaled(classes(pml.ArcFaceLoss, margin=28.6), 64.0),
        "PML SubCenterArcFace": scaled(classes(pml.SubCenterArcFaceLoss, margin=28.6), 64.0),
        "PML SphereFace": scaled(classes(pml.SphereFaceLoss, margin=4), 1.0),
        "PML Contrastive": pair(pml.ContrastiveLoss),
        "PML SupCon": pair(pml.SupConLoss),
        "PML NT-Xent": pair(pml.NTXentLoss),
        "PML Circle": pair(pml.CircleLoss),
        "PML Proxy-Anchor": Arm(lambda d, c, **s: pml.ProxyAnchorLoss(num_classes=c, embedding_size=d)),
        "PML SoftTriple": Arm(lambda d, c, **s: pml.SoftTripleLoss(num_classes=c, embedding_size=d)),
    }


def spread(classes: int, dim: int) -> Tensor:
    """Unit rows of low energy: a simplex where the dimension has room for one, else random rows pushed apart."""
    if classes <= dim + 1:
        return ob.simplex_prototypes(classes, dim)
    rows = nn.Parameter(F.normalize(torch.randn(classes, dim, generator=torch.Generator().manual_seed(0)), dim=1))
    optimizer = torch.optim.SGD([rows], lr=1.0)
    for _ in range(50):
        optimizer.zero_grad()
        (classes * hs.hyperspherical_energy(rows, s=1.0)).backward()
        optimizer.step()
    return F.normalize(rows.detach(), dim=1)


@dataclass(frozen=True)
class Study:
    """Images and labels of three parts that share no class: to train on, to choose on, to measure."""

    title: str
    train: InMemory
    held: InMemory
    test: InMemory
    augment: Affine


def characters() -> Study:
    """Omniglot at 28×28: five background alphabets are held out for the choice; measured on the evaluation set."""
    whole, test = Omniglot(background=True, size=28), Omniglot(background=False, size=28)
    held = whole.alphabets >= 25
    augment = Affine(rotation=0.2, scale=0.15, shear=0.2, shift=2.0, fill=255)
    return Study("Unseen characters (Omniglot)", part(whole, ~held), part(whole, held), part(test, None), augment)


def faces() -> Study:
    """LFW at 32×32, grey: folds 0–7 are trained on (people with two images), 8 chosen on, 9 measured."""
    whole = LFW(crop=112, size=32)
    grey = InMemory(whole.data.float().mean(1, keepdim=True).round().byte(), whole.labels, whole.classes)
    fold = whole.people()
    several = torch.bincount(whole.labels)[whole.labels] > 1
    augment = Affine(rotation=0.1, scale=0.1, shift=1.5, fill=0)
    train = part(grey, several & (fold >= 0) & (fold < 8))
    return Study("Unseen people (LFW, no outside data)", train, part(grey, fold == 8), part(grey, fold == 9), augment)


def speakers() -> Study:
    """Spoken digits as log-mel pictures, 20×40: 24 speakers to train on, 8 to choose on, 16 to measure."""
    roots = os.environ["HYPERSPHERE_DATA"].split(os.pathsep)
    path = next(p for p in (pathlib.Path(r) / "spoken_digits" / "spoken_digits_48.npz" for r in roots) if p.exists())
    raw = np.load(path)
    images = F.avg_pool2d(torch.from_numpy(raw["mel"]).float().unsqueeze(1), 2).round().byte()
    labels = torch.from_numpy(raw["speaker"].astype(np.int64)) - 1
    whole = InMemory(images, labels, [str(i) for i in range(48)])
    augment = Affine(shift=3.0, fill=0)
    parts = (labels < 24, (labels >= 24) & (labels < 32), labels >= 32)
    return Study("Unseen speakers (spoken digits)", *(part(whole, chosen) for chosen in parts), augment)


STUDIES: dict[str, Callable[[], Study]] = {"speakers": speakers, "characters": characters, "faces": faces}


def part(whole: Any, chosen: Tensor | None) -> InMemory:
    """The chosen samples with their classes numbered anew."""
    index = torch.arange(len(whole)) if chosen is None else chosen.nonzero().squeeze(1)
    present, labels = whole.labels[index].unique(return_inverse=True)
    return InMemory(whole.data[index], labels, [whole.classes[i] for i in present.tolist()])


def train(data: InMemory, study: Study, arm: Arm, setting: dict[str, Any], rate: float, steps: int, seed: int) -> Any:
    """The network after training, and CPU seconds of the objective's forward and backward pass a step."""
    torch.manual_seed(seed)
    shape = tuple(data.data.shape[1:])
    sizes: dict[str, Any] = {"in_channels": shape[0], "input_size": shape[1:], "width": 0.25, "feature_dim": DIM}
    net = hs.models.sphereface4(None, norm="batch", **sizes)
    objective = arm.build(DIM, len(data.classes), **setting)
    groups = [*net.parameters(), *(p for p in objective.parameters() if p.requires_grad)]
    optimizer = torch.optim.SGD(groups, lr=rate, momentum=0.9, nesterov=True, weight_decay=2e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    sampler = ClassBalancedSampler(data.labels, min(16, len(data.classes)), 8) if arm.pairs else None
    loader = Loader(data, BATCH, seed, drop_last=True, augment=study.augment, sampler=sampler)
    batches = itertools.chain.from_iterable(itertools.repeat(loader))
    spent = 0.0
    for _ in range(steps):
        images, labels = next(batches)
        features = net(prepared(images))
        start = time.process_time()
        inputs = features.detach().requires_grad_()
        loss = objective(inputs, labels)
        optimizer.zero_grad()
        loss.backward()
        spent += time.process_time() - start
        if not torch.isfinite(loss):
            return None, spent / steps
        features.backward(inputs.grad)
        optimizer.step()
        schedule.step()
        move = getattr(objective, "step", None)
        if callable(move):
            move()
    return net.eval(), spent / steps


def prepared(images: Tensor) -> Tensor:
    """Pixels around 0."""
    return (images.float() - 127.5) / 64


@torch.no_grad()
def measure(net: Any, data: InMemory) -> dict[str, float]:
    """EER, TAR and rank-1 in percent over all pairs of the classes; a network that diverged has none of them."""
    if net is None:
        return {}
    features = torch.cat([net(prepared(images)) for images in data.data.split(512)])
    if not features.isfinite().all():
        return {}
    found = hs.evaluation.open_set_report(features, data.labels, fars=(1e-2, 1e-3), fpirs=(), worst=1)
    values = {"eer": float(found.eer), "tar": float(found.tar(1e-2)), "rank1": float(found.rank(1))}
    return {name: 100 * value for name, value in values.items()}


def rows() -> list[dict[str, Any]]:
    """What is recorded."""
    return [json.loads(line) for line in ROWS.read_text().splitlines()] if ROWS.exists() else []


def run(names: list[str], threads: int) -> None:
    """Every run that has no row yet: the choice of each arm before its seeds, one seed of all arms before the next."""
    torch.set_num_threads(threads)
    arms = {**ARMS, **peers()}
    for name in names:
        study = STUDIES[name]()
        for seed in range(SEEDS):
            for label, arm in arms.items():
                known = [r for r in rows() if r["study"] == name and r["arm"] == label]
                tried = [r for r in known if r["phase"] == "choice"]
                for setting, rate in itertools.product(arm.grid, RATES):
                    if not any(r["setting"] == setting and r["rate"] == rate for r in tried):
                        net, _ = train(study.train, study, arm, setting, rate, TUNING, 0)
                        tried.append(keep(name, label, "choice", setting, rate, 0, measure(net, study.held), 0.0))
                best = min(tried, key=lambda r: r["measures"].get("eer", 100.0))
                if not any(r["phase"] == "test" and r["seed"] == seed for r in known):
                    net, cost = train(joined(study), study, arm, best["setting"], best["rate"], STEPS, seed)
                    keep(name, label, "test", best["setting"], best["rate"], seed, measure(net, study.test), cost)


def joined(study: Study) -> InMemory:
    """Training and held-out classes together: the choice is made, and they may be trained on."""
    labels = torch.cat([study.train.labels, study.held.labels + len(study.train.classes)])
    images = torch.cat([study.train.data, study.held.data])
    return InMemory(images, labels, [*study.train.classes, *study.held.classes])


def keep(study: str, arm: str, phase: str, setting: Any, rate: float, seed: int, found: Any, cost: float) -> Any:
    """Append a row and return it."""
    row = {"study": study, "arm": arm, "phase": phase, "setting": setting, "rate": rate, "seed": seed}
    row |= {"measures": found, "objective_ms": round(1000 * cost, 3)}
    with ROWS.open("a") as file:
        file.write(json.dumps(row) + "\n")
    return row


def table(name: str) -> list[list[object]]:
    """Mean and standard error over seeds of each arm, the smallest EER first."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows():
        if row["study"] == name and row["phase"] == "test":
            found.setdefault(row["arm"], []).append(row)
    lines: list[tuple[float, list[object]]] = []
    for arm, runs in found.items():
        whole = [r["measures"] for r in runs if r["measures"]]
        if not whole:
            lines.append((100.0, [arm, "diverged", "", "", len(runs), ""]))
            continue
        cells = [spread_of([m[key] for m in whole]) for key in ("eer", "tar", "rank1")]
        cost = min(r["objective_ms"] for r in runs)
        chosen = ", ".join(f"{k} {v:g}" for k, v in runs[0]["setting"].items() if k == "scale")
        lines.append((statistics.fmean(m["eer"] for m in whole), [arm, *cells, len(whole), f"{cost:.2f}", chosen]))
    return [line for _, line in sorted(lines, key=lambda pair: pair[0])]


def spread_of(values: list[float]) -> str:
    """Mean ± standard error."""
    if len(values) < 2:
        return f"{values[0]:.2f}"
    return f"{statistics.fmean(values):.2f} ± {statistics.stdev(values) / len(values) ** 0.5:.2f}"


def main() -> None:
    options = parser(__doc__)
    options.add_argument(
        "action", nargs="?", choices=["run"], help="run what is missing; without it the rows are shown"
    )
    options.add_argument("--study", choices=STUDIES, help="one set only")
    args = options.parse_args()
    names = [args.study] if args.study else list(STUDIES)
    if args.action == "run":
        run(names, args.threads)
    header = ["objective", "EER %", "TAR % at FAR 1e-2", "rank-1 %", "seeds", "ms a step", "chosen"]
    for name in names:
        lines = table(name)
        if lines:
            report(f"which_objective_{name}", f"Which objective: {name}", header, lines, args, notes=__doc__ or "")


if __name__ == "__main__":
    main()
