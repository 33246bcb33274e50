"""Measure whether `hypersphere pretrain` on unlabeled pictures improves a `fit` on few labeled ones.

    HYPERSPHERE_DATA=… OMP_NUM_THREADS=1 python benchmarks/pretraining.py --seeds 3

A seed draws 20 characters of Omniglot with 10 drawings each: 15 to train on, 5 for the report. The unlabeled pictures are 2,000
drawings of 200 other characters. Every arm fits the same labeled pictures with the same settings; the network starts at random, or
from ``pretrain`` with a uniformity energy, with or without a teacher. Each finished fit is a row of ``reports/pretraining.jsonl``
and is not made again.
"""

import argparse
import datetime
import json
import pathlib
import statistics
import tempfile
import time

import _rows
import numpy as np
import torch
from small_data import draw, read, take_half

from hypersphere.training import fit, pretrain

ROWS = pathlib.Path(__file__).parent / "reports" / "pretraining.jsonl"
QUICK = {"pictures": False, "threads": 1}
ARMS: dict[str, dict[str, object] | None] = {
    "from scratch": None,
    "alignment + Gaussian uniformity": {},
    "alignment + heat kernel": {"uniformity": "FeatureEnergy", "uniformity.kernel": "Heat", "uniformity.log": True},
    "the same with a teacher": {"teacher": 0.99},
}


def measure(arm: str, seed: int, steps: int) -> dict[str, object]:
    """Run a fit, from scratch or from a pretrained network, and return its row."""
    images, labels = take_half(*read("characters"), 0)
    names = labels.unique()[torch.randperm(len(labels.unique()), generator=torch.Generator().manual_seed(seed))]
    labeled = torch.isin(labels, names[:20])
    pictures, who = draw(images[labeled], labels[labeled], 20, 10, 10, seed)
    others = torch.isin(labels, names[20:220])
    unlabeled, _ = draw(images[others], labels[others], 200, 10, 10, seed)
    held = np.unique(who)[np.random.default_rng(seed).permutation(20)[:5]]
    split = np.where(np.isin(who, held), "test", "train")
    started, settings = time.process_time(), ARMS[arm]
    with tempfile.TemporaryDirectory() as folder:
        start: dict[str, object] = {}
        objective = {}
        if settings is not None:
            source = (unlabeled, np.zeros(len(unlabeled), dtype=int))
            file = pretrain(
                source, pathlib.Path(folder, "start"), settings={**QUICK, "steps": steps, "seed": seed, **settings}
            )
            start = {"weights": str(file)}
            objective = json.loads((file.parent / "metrics.json").read_text())
        spent = time.process_time() - started
        np.savez(pathlib.Path(folder, "set.npz"), images=pictures, labels=who, split=split)
        more = {**QUICK, "seed": seed, "baselines": False, "last_layer": "none", **start}
        run = fit(pathlib.Path(folder, "set.npz"), pathlib.Path(folder, "fit"), settings=more, quiet=True)
        figures = json.loads((run.folder / "report.json").read_text())["figures"]
    return {
        "arm": arm,
        "seed": seed,
        "pretraining_steps": steps if settings is not None else 0,
        "eer": figures["EER"]["value"],
        "interval": figures["EER"]["interval"],
        "rank-1": figures["rank-1"]["value"],
        "effective_rank": objective.get("effective_rank"),
        "pretraining_cpu_seconds": round(spent, 1),
        "cpu_seconds": round(time.process_time() - started, 1),
        "date": datetime.date.today().isoformat(),
        "threads": torch.get_num_threads(),
    }


def main() -> None:
    """Make the missing rows, and print the means."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--arms", nargs="+", default=list(ARMS))
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows = _rows.read_rows(ROWS)
    for seed in range(args.seeds):
        for arm in args.arms:
            if any(row["arm"] == arm and row["seed"] == seed for row in rows):
                continue
            rows.append(measure(arm, seed, args.steps))
            _rows.append_row(ROWS, rows[-1])
            print(json.dumps(rows[-1]), flush=True)
    for arm in ARMS:
        mine = [row for row in rows if row["arm"] == arm]
        if mine:
            eer, first = (statistics.mean(row[key] for row in mine) for key in ("eer", "rank-1"))
            print(f"{arm}: EER {100 * eer:.1f} %, rank-1 {100 * first:.1f} % over {len(mine)} seeds")


if __name__ == "__main__":
    main()
