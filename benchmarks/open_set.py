"""Unseen characters: four heads trained on Omniglot's 964 background characters, measured on the 659 others, three seeds.

    HYPERSPHERE_DATA=… python benchmarks/open_set.py --record

Every finished run is a row of ``reports/open_set.jsonl``; runs that have one are not made again, killed ones resume. Settings were chosen
on background alphabets held out from training. Minutes a run on one core: start several with ``--only`` for several heads at once.
"""

import pathlib
import statistics

from _harness import parser, report

from hypersphere.experiments import Config, replace
from hypersphere.experiments.config import Head
from hypersphere.experiments.reproduce.objectives_openset import base
from hypersphere.experiments.reproduce.runner import append_row, read_rows, run_one

ROWS = pathlib.Path(__file__).parent / "reports" / "open_set.jsonl"
HEADS = {
    "softmax": Head("Softmax"),
    "A-Softmax m = 4": Head("ASoftmax", m=4, annealed=True),
    "CosFace": Head("AMSoftmax", m=0.25, scale=24.0),
    "ArcFace": Head("ArcFace", m=0.25, scale=24.0),
}
FIGURES = {
    "eer": "EER %",
    "tar": "TAR % at FAR 1e-3",
    "one_shot": "20-way 1-shot %, 1,000 episodes",
    "published_runs": "20-way 1-shot %, 20 published runs",
    "rank1": "rank-1 % of 659",
}


def setting(head: Head, seed: int, threads: int) -> Config:
    """Longer and wider than the claim's runs, otherwise the same."""
    config = replace(base("laptop"), steps=5000, evaluate_every=5000, checkpoint_every=500, seed=seed, threads=threads, head=head)
    return replace(config, model__width=0.5, data__rotations=True)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--only", default="", help="a head; all by default")
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--runs", default="runs/open_set", help="folder for checkpoints")
    args = options.parse_args()
    for seed in range(args.seeds):
        for name, head in HEADS.items():
            done = any(row["head"] == name and row["seed"] == seed for row in read_rows(ROWS))
            if not done and args.only in ("", name):
                row = run_one(setting(head, seed, args.threads), pathlib.Path(args.runs) / name / str(seed))
                append_row(ROWS, {"head": name, "seed": seed, **row})
                print(name, seed, {key: row["metrics"][key] for key in FIGURES}, row["seconds"], flush=True)
    table: list[list[object]] = []
    for name in HEADS:
        rows = [row for row in read_rows(ROWS) if row["head"] == name]
        if rows:
            minutes = statistics.mean(row["seconds"] for row in rows) / 60
            table.append([name, len(rows), *(_estimate([row["metrics"][key] for row in rows]) for key in FIGURES), round(minutes, 1)])
    notes = "Mean ± standard error over seeds. Cosine scores of single images; every head has the same network, steps and augmentation."
    report("open_set", "Unseen characters (Omniglot)", ["head", "seeds", *FIGURES.values(), "minutes a run"], table, args, notes)


def _estimate(values: list[float]) -> str:
    error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else float("nan")
    return f"{statistics.mean(values):.2f} ± {error:.2f}"


if __name__ == "__main__":
    main()
