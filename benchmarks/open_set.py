"""Recognition of what was never trained on: unseen characters (Omniglot) and unseen people (LFW, no outside data), by head.

    HYPERSPHERE_DATA=… python benchmarks/open_set.py characters --threads 1 --record

Every finished run is a row of ``reports/open_set_<study>.jsonl``; runs that have one are not made again, killed ones resume. Settings
were chosen on alphabets, and on people, that are neither trained on nor measured here.
"""

import argparse
import pathlib
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from _harness import make_parser, write_report

from hypersphere.config import Call
from hypersphere.objectives import ArcFace, CosFace, Softmax, SphereFace
from hypersphere.recipes.chapter2 import SPHEREFACE_LAMBDA, make_open_set, sphereface_lfw
from hypersphere.training import Config, CosineRate, call, replace
from studies.liu2020 import Training
from studies.liu2020.rows import append_row, read_rows

REPORTS = pathlib.Path(__file__).parent / "reports"
PUBLISHED = (
    "Published accuracies (%, mean ± standard error over the ten folds, as the results page of LFW lists them), identities known: "
    "LDML-MkNN on funneled images 87.50 ± 0.40; with images that were aligned by a commercial system LBP multishot 85.17 ± 0.61 and "
    "combined multishot 89.50 ± 0.51. Pairs only, no outside data: hybrid descriptors on funneled images 78.47 ± 0.51, V1-like/MKL "
    "79.35 ± 0.55, APEM (fusion) 84.08 ± 1.20. These are descriptors made by hand; a small network that learns from 1,300 people alone "
    "is at the level of the last and behind the first."
)


@dataclass
class Study:
    """The heads and settings of a comparison; a repetition is a seed or a fold."""

    title: str
    heads: dict[str, Call]
    make_config: Callable[[int], Config]
    repetitions: int
    figures: dict[str, str]
    notes: str
    more: dict[str, int] = field(default_factory=dict)  # repetitions of single heads, if different


def make_character_config(seed: int) -> Config:
    """Return the recipe's settings, wider and longer, with rotated characters as further classes."""
    found = make_open_set("laptop", call(Softmax))
    config = replace(found, steps=4000, evaluate_every=4000, checkpoint_every=500, seed=seed)
    return replace(config, {"backbone.width": 0.5, "samples.rotations": True})


def make_face_config(fold: int) -> Config:
    """Return the settings for people of eight folds; a fold is measured at the threshold of the next."""
    config: Config = sphereface_lfw("laptop")
    times = {"steps": 1000, "evaluate_every": 1000, "checkpoint_every": 500, "channels_last": True}
    optimizer = call(torch.optim.SGD, lr=0.1, momentum=0.9, nesterov=True, weight_decay=2e-3)
    return replace(config, {"task.fold": fold}, optimizer=optimizer, schedule=call(CosineRate), **times)


STUDIES = {
    "characters": Study(
        "Unseen characters (Omniglot)",
        {
            "softmax": call(Softmax),
            "A-Softmax m = 4": call(SphereFace, m=4, annealing=SPHEREFACE_LAMBDA),
            "CosFace m = 0.25, s = 24": call(CosFace, m=0.25, scale=24.0),
            "ArcFace m = 0.25, s = 24": call(ArcFace, m=0.25, scale=24.0),
        },
        make_character_config,
        3,
        {
            "eer": "EER %",
            "tar": "TAR % at FAR 1e-3",
            "one_shot": "20-way 1-shot %, 1,000 episodes",
            "published_runs": "20-way 1-shot %, 20 published runs",
            "rank1": "rank-1 % of 659",
        },
        "964 background characters (four orientations each as classes), measured on 659 others. SphereFace-4 of half width with batch "
        "normalization, 128 features, 28×28, 4,000 steps of 128; the same for every head. Mean ± standard error over seeds; cosine scores "
        "of single images.",
    ),
    "faces": Study(
        "Unseen people (LFW)",
        {
            "softmax": call(Softmax),
            "A-Softmax m = 4": call(SphereFace, m=4, annealing=SPHEREFACE_LAMBDA.replace(rate=0.5)),
            "CosFace m = 0.2, s = 20": call(CosFace, m=0.2, scale=20.0),
        },
        make_face_config,
        2,
        {"accuracy": "accuracy %", "eer": "EER %", "auc": "AUC %", "tar": "TAR % at FAR 1e-2"},
        "No outside data: training on people of eight folds with at least two images; one fold is measured at the threshold of another. "
        "CosFace on all ten folds, the other heads on folds 0 and 1. SphereFace-4 of quarter width with batch "
        "normalization, 128 features, 48×48, 1,000 "
        "steps of 128. Mean ± standard error over folds; cosine scores of features with those of the mirror image.\n\n"
        + PUBLISHED,
        {"CosFace m = 0.2, s = 20": 10},
    ),
}


def main() -> None:
    options = make_parser(__doc__)
    options.add_argument("study", nargs="?", choices=STUDIES, help="study to run; without it, print the recorded runs")
    options.add_argument("--runs", default="runs/open_set", help="folder for checkpoints")
    args = options.parse_args()
    for name, study in STUDIES.items():
        path = REPORTS / f"open_set_{name}.jsonl"
        if name == args.study:
            train(study, path, pathlib.Path(args.runs) / name, args.threads)
        if path.exists() and args.study in (None, name):
            write_table(name, study, path, args)


def train(study: Study, path: pathlib.Path, runs: pathlib.Path, threads: int) -> None:
    """Make the missing rows, all heads of one repetition before the next."""
    for repetition in range(max(study.repetitions, *study.more.values(), 0)):
        for name, head in study.heads.items():
            if repetition >= study.more.get(name, study.repetitions) or any(
                row["head"] == name and row["repetition"] == repetition for row in read_rows(path)
            ):
                continue
            config = replace(study.make_config(repetition), head=head, threads=threads)
            row = Training(config).make_row(config.seed, runs / name / str(repetition), threads)
            append_row(path, {"head": name, "repetition": repetition, **row})
            print(name, repetition, {key: row["metrics"][key] for key in study.figures}, row["seconds"], flush=True)


def write_table(name: str, study: Study, path: pathlib.Path, args: argparse.Namespace) -> None:
    """Write the table of the recorded runs."""
    found = {head: [row for row in read_rows(path) if row["head"] == head] for head in study.heads}
    table: list[list[object]] = [
        [
            head,
            len(rows),
            *(_format_estimate([row["metrics"][key] for row in rows]) for key in study.figures),
            _format_minutes(rows),
        ]
        for head, rows in found.items()
        if rows
    ]
    args.threads = max(row["threads"] for rows in found.values() for row in rows)
    header = ["head", "runs", *study.figures.values(), "minutes per run"]
    write_report(
        f"open_set_{name}",
        study.title,
        header,
        table,
        args,
        study.notes,
        how="sequential runs on a busy machine.",
    )


def _format_minutes(rows: list[dict[str, Any]]) -> str:
    return f"{statistics.mean(row['seconds'] for row in rows) / 60:.1f}"


def _format_estimate(values: list[float]) -> str:
    error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else float("nan")
    return f"{statistics.mean(values):.2f} ± {error:.2f}"


if __name__ == "__main__":
    main()
