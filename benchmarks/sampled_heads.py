"""Compare heads that use a part of their classes in each step with the full head, on unseen classes.

    HYPERSPHERE_DATA=… python benchmarks/sampled_heads.py run --threads 1      # make the missing rows
    python benchmarks/sampled_heads.py --record                                # write the table

Training on 964 characters of Omniglot; TAR at FAR 10⁻³ over all pairs of drawings of 659 others. SphereFace-4 of the claim
``objectives-openset``, AM-Softmax (m = 0.2, scale 20), RowSGD, the same initialization and batches for every arm of a seed. All arms
ran with 600 steps on seeds 0 to 2. The full head and the best schedule that begins with a tenth also ran on seeds 3 to 8, which were
not used for any choice. Both, and a schedule that begins with three tenths, ran for 2,000 steps, the length of the recipe
``sphereface-omniglot``, on seeds 3 to 7. Intervals are of differences paired by seed (Student's t). With the cosine schedule, the last
quarter of the steps has 2.5 % of the sum of learning rates, the last half 18 %, the last three quarters 53 %. Every finished run is a
row of ``reports/sampled_heads.jsonl`` and is not repeated.
"""

import math
import pathlib
import statistics
import tempfile
import time
from typing import Any

import _rows
import torch
from _harness import make_parser, write_report

from hypersphere.config import call
from hypersphere.objectives import AMSoftmax, RowSGD, Sample, Stages
from hypersphere.training import Experiment, replace
from studies.liu2020.claims.objectives_openset import make_base_config

ROWS = pathlib.Path(__file__).parent / "reports" / "sampled_heads.jsonl"
STEPS, LONG, CHOICE = 600, 2000, range(3)
STUDENT = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306}
"""The 97.5 % quantile of Student's t by number of seeds."""

ARMS: dict[str, tuple[float, float] | float | None] = {
    "all classes": None,
    "a tenth, all from three quarters on": (0.1, 0.75),
    "three tenths, all from three quarters on": (0.3, 0.75),
    "a tenth, all from half on": (0.1, 0.5),
    "a tenth, all from a quarter on": (0.1, 0.25),
    "three tenths, all from a quarter on": (0.3, 0.25),
    "a tenth": 0.1,
    "a tenth, unbiased": 0.1,
}
"""None: all classes. A number: the sampling rate. A pair: a rate, and the share of the run after which all classes are used."""

REPORTED = {"all classes", "a tenth, all from a quarter on"}
"""Arms that also run on seeds 3 to 8, which were not used for any choice."""

LONG_ONLY = "three tenths, all from a quarter on"
"""An arm of the long runs only. It was added after the arms of a tenth had been seen on three seeds."""


def list_seeds(arm: str, steps: int) -> range:
    """Return the seeds of an arm for a number of steps."""
    if steps == LONG:
        return range(3, 8) if arm in {*REPORTED, LONG_ONLY} else range(0)
    return range(9) if arm in REPORTED else range(0) if arm == LONG_ONLY else CHOICE


def get_sampling(arm: str, steps: int) -> dict[str, Any]:
    """Return the head's ``sample`` option."""
    rule = ARMS[arm]
    if rule is None:
        return {}
    if isinstance(rule, tuple):
        return {"sample": call(Stages, values=[rule[0], 1.0], at=[int(steps * rule[1])])}
    return {"sample": call(Sample, rate=rule, **({"unbiased": True} if "unbiased" in arm else {}))}


def measure_arm(arm: str, seed: int, steps: int) -> dict[str, Any]:
    """Train one arm and evaluate it on unseen characters."""
    head = call(AMSoftmax, m=0.2, scale=20.0, **get_sampling(arm, steps))
    optimizer = call(RowSGD, lr=0.1, momentum=0.9, weight_decay=5e-4)
    options = {"steps": steps, "evaluate_every": steps, "checkpoint_every": steps, "seed": seed, "pictures": False}
    config = replace(make_base_config("laptop"), head=head, optimizer=optimizer, **options)
    start = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        found = Experiment(config, pathlib.Path(folder) / "run").run()
    kept = {name: round(found[name], 4) for name in ("tar", "eer", "rank1", "one_shot")}
    return {"arm": arm, "seed": seed, "steps": steps, **kept, "cpu": round(time.process_time() - start, 1)}


def read_rows(steps: int) -> list[dict[str, Any]]:
    """Return the recorded rows with this number of steps."""
    found = _rows.read_rows(ROWS)
    return [row for row in found if row["steps"] == steps]


def run_missing() -> None:
    """Make the missing rows, all arms of a seed before the next."""
    runs = [(steps, arm, seed) for steps in (STEPS, LONG) for arm in ARMS for seed in list_seeds(arm, steps)]
    for steps, arm, seed in sorted(runs, key=lambda entry: (entry[0], entry[2])):
        if not any(row["arm"] == arm and row["seed"] == seed for row in read_rows(steps)):
            row = measure_arm(arm, seed, steps)
            _rows.append_row(ROWS, row)


def make_table(steps: int) -> list[list[object]]:
    """Return means over seeds and paired differences from the full head with their intervals."""
    by_arm = {arm: {row["seed"]: row for row in read_rows(steps) if row["arm"] == arm} for arm in ARMS}
    full, lines = by_arm["all classes"], []
    for arm, found in by_arm.items():
        if not found:
            continue
        three = [found[seed] for seed in CHOICE if seed in found]
        cells = [_format_mean([row[name] for row in three]) for name in ("tar", "eer", "rank1", "one_shot")]
        differences = {seed: row["tar"] - full[seed]["tar"] for seed, row in found.items() if seed in full}
        blind = [value for seed, value in differences.items() if seed not in CHOICE]
        shown = [
            _format_interval([differences[seed] for seed in CHOICE if seed in differences]),
            _format_interval(blind),
        ]
        shown = ["–", "–"] if arm == "all classes" else shown
        others = [row["tar"] for seed, row in found.items() if seed not in CHOICE]
        cpu = f"{statistics.fmean(row['cpu'] for row in found.values()):.0f}"
        lines.append([arm, steps, *cells, shown[0], _format_mean(others), shown[1], len(found), cpu])
    return lines


def _format_mean(values: list[float]) -> str:
    if len(values) < 2:
        return f"{values[0]:.2f}" if values else "–"
    return f"{statistics.fmean(values):.2f} ± {statistics.stdev(values) / math.sqrt(len(values)):.2f}"


def _format_interval(differences: list[float]) -> str:
    if len(differences) < 2:
        return "–"
    reach = STUDENT[len(differences)] * statistics.stdev(differences) / math.sqrt(len(differences))
    return f"{statistics.fmean(differences):+.2f} ± {reach:.2f}"


def main() -> None:
    options = make_parser(__doc__)
    options.add_argument(
        "action", nargs="?", choices=["run"], help="make the missing rows; without it, print the table"
    )
    options.set_defaults(threads=1)
    args = options.parse_args()
    torch.set_num_threads(args.threads)
    if args.action == "run":
        run_missing()
    header = ["classes in a step", "steps", "TAR % at FAR 1e-3", "EER %", "rank-1 %", "20-way 1-shot %"]
    header += ["TAR against all, 95 %", "TAR %, seeds 3 to 8", "against all, 95 %", "seeds", "CPU s per run"]
    how = "means ± standard errors over seeds 0 to 2, and over 3 to 8 where it says so."
    write_report(
        "sampled_heads",
        "Heads with sampled classes, on unseen characters",
        header,
        [*make_table(STEPS), *make_table(LONG)],
        args,
        "",
        how,
    )


if __name__ == "__main__":
    main()
