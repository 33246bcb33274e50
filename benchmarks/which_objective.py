"""Compare all heads and pair losses on unseen characters, people and speakers, at one budget.

    HYPERSPHERE_DATA=… python benchmarks/which_objective.py run --study faces --threads 1   # make the missing rows
    python benchmarks/which_objective.py --record                                           # write the tables

All objectives use one network (SphereFace-4 with an eighth of its width, batch normalization, 64 features) and one optimizer
(AdamW, weight decay 0.05, gradients clipped to a norm of 5, a ten times higher learning rate for class weights and proxies, a
cosine schedule), with 200 steps of 64 images. Pair losses get batches of 8 classes × 8 images (faces: 32 × 2). Each objective has
its usual settings. Its learning rate (0.002 or 0.006) and its scale (the usual one or 24) are chosen by the EER on validation
classes (80 steps, one seed). Then three seeds are trained on all training and validation classes, and measured on all pairs of
test classes. "PML …" is the implementation of pytorch-metric-learning. Every finished run is a row of
``reports/which_objective.jsonl`` and is not repeated. ``ms per step`` is the CPU time of the objective alone, forward and backward
to the features: the minimum over runs of the median over steps.
"""

import itertools
import os
import pathlib
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import _rows
import numpy as np
import torch
from _harness import make_parser, write_report
from _objective_arms import ARMS, Arm, Plan, list_peers
from torch import Tensor
from torch.nn import functional as F

import hypersphere as hs
from hypersphere.data import LFW, Affine, ClassBalancedSampler, InMemory, Loader, Omniglot

ROWS = pathlib.Path(__file__).parent / "reports" / "which_objective.jsonl"
STEPS, TUNING, BATCH, DIM, SEEDS = 200, 80, 64, 64, 3
RATES = (0.002, 0.006)


@dataclass(frozen=True)
class Study:
    """Training, validation and test images, which share no class."""

    train: InMemory
    held: InMemory
    test: InMemory
    augment: Affine
    each: int  # images per class in a batch of a pair loss


def load_characters() -> Study:
    """Load Omniglot at 20×20 pixels.

    Training: every fourth character of 25 alphabets. Validation: five alphabets. Test: every third evaluation character.
    """
    whole, test = Omniglot(background=True, size=20), Omniglot(background=False, size=20)
    held = whole.alphabets >= 25
    augment = Affine(rotation=0.2, scale=0.15, shear=0.2, shift=1.5, fill=255)
    measured = select_part(test, test.labels % 3 == 0, most=10)
    trained = select_part(whole, ~held & (whole.labels % 4 == 0))
    return Study(trained, select_part(whole, held, most=10), measured, augment, each=8)


def load_faces() -> Study:
    """LFW at 24×24, gray: people with five images of folds 0–7 are trained on; those with two of 8 chosen on, of 9 measured."""
    whole = LFW(crop=112, size=24)
    grey = InMemory(whole.data.float().mean(1, keepdim=True).round().byte(), whole.labels, whole.classes)
    fold, images = whole.people(), torch.bincount(whole.labels)[whole.labels]
    parts = [select_part(grey, (images >= 5) & (fold >= 0) & (fold < 8), most=20)]
    parts += [select_part(grey, (images >= 2) & (fold == k), most=10) for k in (8, 9)]
    return Study(*parts, Affine(rotation=0.1, scale=0.1, shift=1.0, fill=0), each=2)


def load_speakers() -> Study:
    """Spoken digits as log-mel pictures, 20×20: 24 speakers to train on, 8 to choose on, 16 to measure."""
    roots = os.environ["HYPERSPHERE_DATA"].split(os.pathsep)
    path = next(p for p in (pathlib.Path(r) / "spoken_digits" / "spoken_digits_48.npz" for r in roots) if p.exists())
    raw = np.load(path)
    images = F.avg_pool2d(torch.from_numpy(raw["mel"]).float().unsqueeze(1), (2, 4)).round().byte()
    labels = torch.from_numpy(raw["speaker"].astype(np.int64)) - 1
    whole = InMemory(images, labels, [str(i) for i in range(48)])
    parts = [
        select_part(whole, labels < 24),
        select_part(whole, (labels >= 24) & (labels < 32)),
        select_part(whole, labels >= 32),
    ]
    return Study(*parts, Affine(shift=1.0, fill=0), each=8)


STUDIES: dict[str, Callable[[], Study]] = {
    "speakers": load_speakers,
    "characters": load_characters,
    "faces": load_faces,
}


def select_part(whole: Any, chosen: Tensor, most: int | None = None) -> InMemory:
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
        features = net(scale_pixels(images))
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


def scale_pixels(images: Tensor) -> Tensor:
    """Center and scale pixels."""
    return (images.float() - 127.5) / 64


@torch.no_grad()
def measure(net: Any, data: InMemory) -> dict[str, float]:
    """Return EER, TAR and rank-1 in percent over all pairs; nothing for a network that diverged."""
    if net is None:
        return {}
    features = torch.cat([net(scale_pixels(images)) for images in data.data.split(512)])
    if not features.isfinite().all():
        return {}
    roc = hs.evaluation.all_pairs(features, data.labels, worst=1).roc
    tar = roc.accepted_same[roc.at_far(1e-2)].item() / roc.positives
    nearest = (F.normalize(features) @ F.normalize(features).T).fill_diagonal_(-2).argmax(1)
    rank1 = (data.labels[nearest] == data.labels).double().mean().item()
    return {"eer": 100 * float(roc.eer), "tar": 100 * tar, "rank1": 100 * rank1}


def read_rows() -> list[dict[str, Any]]:
    """Return the recorded rows."""
    return _rows.read_rows(ROWS)


def run_missing(names: list[str], threads: int, seeds: int) -> None:
    """Make the missing rows: first the tuning of each arm, then its seeds, one seed of all arms before the next."""
    torch.set_num_threads(threads)
    arms = {**ARMS, **list_peers()}
    for name in names:
        study = STUDIES[name]()
        for seed in range(seeds):
            for label, arm in arms.items():
                known = [r for r in read_rows() if r["study"] == name and r["arm"] == label]
                tried = [r for r in known if r["phase"] == "choice"]
                for setting, rate in itertools.product(arm.grid, RATES):
                    if not any(r["setting"] == setting and r["rate"] == rate for r in tried):
                        net, _ = train(study.train, study, arm, setting, rate, TUNING, 0)
                        tried.append(append_row(name, label, "choice", setting, rate, 0, measure(net, study.held), 0.0))
                best = min(tried, key=lambda r: r["measures"].get("eer", 100.0))
                if not any(r["phase"] == "test" and r["seed"] == seed for r in known):
                    net, cost = train(join_classes(study), study, arm, best["setting"], best["rate"], STEPS, seed)
                    append_row(name, label, "test", best["setting"], best["rate"], seed, measure(net, study.test), cost)


def join_classes(study: Study) -> InMemory:
    """Return the training and validation classes as one set."""
    labels = torch.cat([study.train.labels, study.held.labels + len(study.train.classes)])
    images = torch.cat([study.train.data, study.held.data])
    return InMemory(images, labels, [*study.train.classes, *study.held.classes])


def append_row(study: str, arm: str, phase: str, setting: Any, rate: float, seed: int, found: Any, cost: float) -> Any:
    """Append a row and return it."""
    row = {"study": study, "arm": arm, "phase": phase, "setting": setting, "rate": rate, "seed": seed}
    row |= {"measures": {key: round(value, 3) for key, value in found.items()}, "objective_ms": round(1000 * cost, 3)}
    _rows.append_row(ROWS, row)
    return row


def find_test_runs(name: str) -> dict[str, list[dict[str, Any]]]:
    """Return the recorded test runs of each arm."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in read_rows():
        if row["study"] == name and row["phase"] == "test":
            found.setdefault(row["arm"], []).append(row)
    return found


def make_table(name: str) -> list[list[object]]:
    """Return mean and standard error over seeds of each arm, ordered by EER."""
    lines: list[tuple[float, list[object]]] = []
    for arm, runs in find_test_runs(name).items():
        whole = [r["measures"] for r in runs if r["measures"]]
        if not whole:
            lines.append((100.0, [arm, "diverged", "", "", len(runs), "", ""]))
            continue
        cells = [format_mean([m[key] for m in whole]) for key in ("eer", "tar", "rank1")]
        cost = min(r["objective_ms"] for r in runs)
        chosen = ", ".join([*(f"{k} {v:g}" for k, v in runs[0]["setting"].items()), f"rate {runs[0]['rate']:g}"])
        lines.append((statistics.fmean(m["eer"] for m in whole), [arm, *cells, len(whole), f"{cost:.2f}", chosen]))
    return [line for _, line in sorted(lines, key=lambda pair: pair[0])]


def describe_resolution(name: str) -> str:
    """Describe which differences of two rows occur by chance in 5 % of cases, from the pooled variance within arms."""
    runs = [[r["measures"]["eer"] for r in found if r["measures"]] for found in find_test_runs(name).values()]
    groups = [values for values in runs if len(values) > 1]
    freedom = sum(len(values) - 1 for values in groups)
    if freedom < 10:
        return "There are too few seeds to say which differences occur by chance."
    pooled = (sum(statistics.variance(values) * (len(values) - 1) for values in groups) / freedom) ** 0.5
    quantile = 1.96 + 2.4 / freedom  # Student's t at 97.5 %, to within 0.03 from 10 degrees of freedom on
    least = {n: quantile * pooled * (2 / n) ** 0.5 for n in sorted({len(values) for values in runs if values})}
    said = ", ".join(f"{gap:.2f} with {n} seed{'s' if n > 1 else ''} each" for n, gap in least.items())
    return (
        f"The standard deviation between seeds is {pooled:.2f} points of EER. Differences above these values are unlikely by chance: "
        f"{said}. This does not include the choice of test classes, which all objectives share."
    )


def format_mean(values: list[float]) -> str:
    """Format a mean ± standard error."""
    if len(values) < 2:
        return f"{values[0]:.2f}"
    return f"{statistics.fmean(values):.2f} ± {statistics.stdev(values) / len(values) ** 0.5:.2f}"


def main() -> None:
    options = make_parser(__doc__)
    options.add_argument(
        "action", nargs="?", choices=["run"], help="make the missing rows; without it, print the tables"
    )
    options.add_argument("--study", choices=STUDIES, help="one dataset only")
    options.add_argument("--seeds", type=int, default=SEEDS, help="number of seeds")
    args = options.parse_args()
    names = [args.study] if args.study else list(STUDIES)
    if args.action == "run":
        run_missing(names, args.threads, args.seeds)
    header = ["objective", "EER %", "TAR % at FAR 1e-2", "rank-1 %", "seeds", "ms per step", "chosen"]
    for name in names:
        lines = make_table(name)
        if lines:
            notes = (__doc__ or "").split("\n\n", 2)[2]
            said = f"Means ± standard errors over seeds. {describe_resolution(name)}"
            how = "sequential runs on a busy machine."
            write_report(
                f"which_objective_{name}", f"Which objective: {name}", header, lines, args, f"{said}\n\n{notes}", how
            )


if __name__ == "__main__":
    main()
