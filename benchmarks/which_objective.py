"""Which objective to choose: every head and pair loss on unseen characters, people and speakers, at one budget.

    HYPERSPHERE_DATA=… python benchmarks/which_objective.py run --study faces --threads 1   # makes the rows that are missing
    python benchmarks/which_objective.py --record                                           # the tables, from the rows

One network for every objective (SphereFace-4 of an eighth of its width, batch normalization, 64 features), one optimizer
(AdamW, weight decay 0.05, gradients clipped to a norm of 5, the rate ten times higher for class weights and proxies, a
cosine schedule), 200 steps of 64 images; losses of pairs get 8 classes × 8 images (32 × 2 of faces). An objective is at its
usual setting; its rate (0.002 or 0.006), and where it has one its scale (the usual one or 24), are chosen by the EER on
classes held out of training (80 steps, one seed). Then three seeds are trained on all training classes, the held-out ones
among them, and measured on classes that neither training nor the choice has seen, over all their pairs. "PML …" is
pytorch-metric-learning's implementation of the same loss under the same protocol. Every finished run is a row of
``reports/which_objective.jsonl`` and is not made again. ``ms a step`` is the CPU time of the objective alone, forward and
backward to the features: the least of the three runs' medians.
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
from _objective_arms import ARMS, Arm, Plan, peers
from torch import Tensor
from torch.nn import functional as F

import hypersphere as hs
from hypersphere.data import LFW, Affine, ClassBalancedSampler, InMemory, Loader, Omniglot

ROWS = pathlib.Path(__file__).parent / "reports" / "which_objective.jsonl"
STEPS, TUNING, BATCH, DIM, SEEDS = 200, 80, 64, 64, 3
RATES = (0.002, 0.006)


@dataclass(frozen=True)
class Study:
    """Images and labels of three parts that share no class: to train on, to choose on, to measure."""

    train: InMemory
    held: InMemory
    test: InMemory
    augment: Affine
    each: int  # images of a class in a batch of pairs


def characters() -> Study:
    """Omniglot at 20×20: every fourth character of 25 alphabets is trained on, five alphabets are chosen on.

    Measured on every third character of the evaluation alphabets.
    """
    whole, test = Omniglot(background=True, size=20), Omniglot(background=False, size=20)
    held = whole.alphabets >= 25
    augment = Affine(rotation=0.2, scale=0.15, shear=0.2, shift=1.5, fill=255)
    measured = part(test, test.labels % 3 == 0, most=10)
    trained = part(whole, ~held & (whole.labels % 4 == 0))
    return Study(trained, part(whole, held, most=10), measured, augment, each=8)


def faces() -> Study:
    """LFW at 24×24, gray: people with five images of folds 0–7 are trained on; those with two of 8 chosen on, of 9 measured."""
    whole = LFW(crop=112, size=24)
    grey = InMemory(whole.data.float().mean(1, keepdim=True).round().byte(), whole.labels, whole.classes)
    fold, images = whole.people(), torch.bincount(whole.labels)[whole.labels]
    parts = [part(grey, (images >= 5) & (fold >= 0) & (fold < 8), most=20)]
    parts += [part(grey, (images >= 2) & (fold == k), most=10) for k in (8, 9)]
    return Study(*parts, Affine(rotation=0.1, scale=0.1, shift=1.0, fill=0), each=2)


def speakers() -> Study:
    """Spoken digits as log-mel pictures, 20×20: 24 speakers to train on, 8 to choose on, 16 to measure."""
    roots = os.environ["HYPERSPHERE_DATA"].split(os.pathsep)
    path = next(p for p in (pathlib.Path(r) / "spoken_digits" / "spoken_digits_48.npz" for r in roots) if p.exists())
    raw = np.load(path)
    images = F.avg_pool2d(torch.from_numpy(raw["mel"]).float().unsqueeze(1), (2, 4)).round().byte()
    labels = torch.from_numpy(raw["speaker"].astype(np.int64)) - 1
    whole = InMemory(images, labels, [str(i) for i in range(48)])
    parts = [part(whole, labels < 24), part(whole, (labels >= 24) & (labels < 32)), part(whole, labels >= 32)]
    return Study(*parts, Affine(shift=1.0, fill=0), each=8)


STUDIES: dict[str, Callable[[], Study]] = {"speakers": speakers, "characters": characters, "faces": faces}


def part(whole: Any, chosen: Tensor, most: int | None = None) -> InMemory:
    """The chosen samples with their classes numbered anew, the first ``most`` of each class."""
    index = chosen.nonzero().squeeze(1)
    if most is not None:
        one = F.one_hot(whole.labels[index].unique(return_inverse=True)[1])
        index = index[(one.cumsum(0) * one).sum(1) <= most]
    present, labels = whole.labels[index].unique(return_inverse=True)
    return InMemory(whole.data[index], labels, [whole.classes[i] for i in present.tolist()])


def train(data: InMemory, study: Study, arm: Arm, setting: dict[str, Any], rate: float, steps: int, seed: int) -> Any:
    """The network after training, None if it diverged, and the median of the objective's CPU seconds a step."""
    torch.manual_seed(seed)
    shape = tuple(data.data.shape[1:])
    sizes: dict[str, Any] = {"in_channels": shape[0], "input_size": shape[1:], "width": 0.125, "feature_dim": DIM}
    net = hs.models.sphereface4(None, norm="batch", **sizes)
    objective = arm.build(Plan(DIM, torch.bincount(data.labels).tolist(), steps), **setting)
    own = [p for p in objective.parameters() if p.requires_grad]
    groups = [{"params": list(net.parameters())}, *([{"params": own, "lr": 10 * rate}] if own else [])]
    optimizer = torch.optim.AdamW(groups, lr=rate, weight_decay=0.05, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    classes = min(BATCH // study.each, len(data.classes))
    sampler = ClassBalancedSampler(data.labels, classes, study.each) if arm.pairs else None
    loader = Loader(data, BATCH, seed, drop_last=True, augment=study.augment, sampler=sampler)
    batches = itertools.chain.from_iterable(itertools.repeat(loader))
    spent = []
    for _ in range(steps):
        images, labels = next(batches)
        features = net(prepared(images))
        optimizer.zero_grad()
        start = time.process_time()
        inputs = features.detach().requires_grad_()
        loss = objective(inputs, labels)
        loss.backward()
        spent.append(time.process_time() - start)
        if not torch.isfinite(loss):
            return None, statistics.median(spent)
        features.backward(inputs.grad)
        torch.nn.utils.clip_grad_norm_([*net.parameters(), *own], 5.0)
        optimizer.step()
        schedule.step()
        move = getattr(objective, "step", None)
        if callable(move):
            move()
    return net.eval(), statistics.median(spent)


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
    roc = hs.evaluation.all_pairs(features, data.labels, worst=1).roc
    tar = roc.accepted_same[roc.at_far(1e-2)].item() / roc.positives
    nearest = (F.normalize(features) @ F.normalize(features).T).fill_diagonal_(-2).argmax(1)
    rank1 = (data.labels[nearest] == data.labels).double().mean().item()
    return {"eer": 100 * float(roc.eer), "tar": 100 * tar, "rank1": 100 * rank1}


def rows() -> list[dict[str, Any]]:
    """What is recorded."""
    return [json.loads(line) for line in ROWS.read_text().splitlines()] if ROWS.exists() else []


def run(names: list[str], threads: int, seeds: int) -> None:
    """Every run that has no row yet: the choice of each arm before its seeds, one seed of all arms before the next."""
    torch.set_num_threads(threads)
    arms = {**ARMS, **peers()}
    for name in names:
        study = STUDIES[name]()
        for seed in range(seeds):
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
    row |= {"measures": {key: round(value, 3) for key, value in found.items()}, "objective_ms": round(1000 * cost, 3)}
    with ROWS.open("a") as file:
        file.write(json.dumps(row) + "\n")
    return row


def tested(name: str) -> dict[str, list[dict[str, Any]]]:
    """The recorded runs of each arm on unseen classes."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows():
        if row["study"] == name and row["phase"] == "test":
            found.setdefault(row["arm"], []).append(row)
    return found


def table(name: str) -> list[list[object]]:
    """Mean and standard error over seeds of each arm, the smallest EER first."""
    lines: list[tuple[float, list[object]]] = []
    for arm, runs in tested(name).items():
        whole = [r["measures"] for r in runs if r["measures"]]
        if not whole:
            lines.append((100.0, [arm, "diverged", "", "", len(runs), "", ""]))
            continue
        cells = [spread_of([m[key] for m in whole]) for key in ("eer", "tar", "rank1")]
        cost = min(r["objective_ms"] for r in runs)
        chosen = ", ".join([*(f"{k} {v:g}" for k, v in runs[0]["setting"].items()), f"rate {runs[0]['rate']:g}"])
        lines.append((statistics.fmean(m["eer"] for m in whole), [arm, *cells, len(whole), f"{cost:.2f}", chosen]))
    return [line for _, line in sorted(lines, key=lambda pair: pair[0])]


def resolution(name: str) -> str:
    """Say which differences of two rows chance alone makes in 5 % of cases: Student's t over the variance within arms, pooled."""
    runs = [[r["measures"]["eer"] for r in found if r["measures"]] for found in tested(name).values()]
    groups = [values for values in runs if len(values) > 1]
    freedom = sum(len(values) - 1 for values in groups)
    if freedom < 10:
        return "There are too few seeds yet to say which differences chance alone makes."
    pooled = (sum(statistics.variance(values) * (len(values) - 1) for values in groups) / freedom) ** 0.5
    quantile = 1.96 + 2.4 / freedom  # Student's t at 97.5 %, to within 0.03 from 10 degrees of freedom on
    least = {n: quantile * pooled * (2 / n) ** 0.5 for n in sorted({len(values) for values in runs if values})}
    said = ", ".join(f"{gap:.2f} with {n} seed{'s' if n > 1 else ''} each" for n, gap in least.items())
    return (
        f"The deviation between seeds is {pooled:.2f} points of EER; two objectives are told apart from these differences on: "
        f"{said}. The noise of who is measured, which all objectives share, is not in it."
    )


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
    options.add_argument("--seeds", type=int, default=SEEDS, help="the first so many only")
    args = options.parse_args()
    names = [args.study] if args.study else list(STUDIES)
    if args.action == "run":
        run(names, args.threads, args.seeds)
    header = ["objective", "EER %", "TAR % at FAR 1e-2", "rank-1 %", "seeds", "ms a step", "chosen"]
    for name in names:
        lines = table(name)
        if lines:
            notes = (__doc__ or "").split("\n\n", 2)[2]
            said = f"Means ± standard errors over seeds. {resolution(name)}"
            how = "one run after another beside other work."
            report(
                f"which_objective_{name}", f"Which objective: {name}", header, lines, args, f"{said}\n\n{notes}", how
            )


if __name__ == "__main__":
    main()
