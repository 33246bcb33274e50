"""Compare the steps that nGPT and an equally tuned GPT need to reach the same loss, at a small size.

    OMP_NUM_THREADS=1 python benchmarks/ngpt.py tune      # learning rate of both, over one grid
    OMP_NUM_THREADS=1 python benchmarks/ngpt.py compare   # three seeds, three lengths of training
    python benchmarks/ngpt.py table

Both models have the same layers and, up to 1 %, as many parameters; they see the same batches of characters of Python's
help texts. The GPT gets what it is trained with elsewhere: weight decay 0.1 and a warmup over a tenth of the steps; nGPT
needs neither. Each has two variants of its start and its own learning rate: the best of one grid, on a seed that is not compared.
The grid grows until no best rate is at its edge. The state of the GPT is not normalized (issue 1 of NVIDIA/ngpt).

Every run is a row of ``reports/ngpt.jsonl`` and is not made again; ``--seconds`` ends a call early. A run has a cosine
schedule of its own length, so "steps to equal loss" compares whole trainings: the loss of one model after the longest
training is looked up between those of the other model after shorter ones (linear in the logarithm of the steps).
"""

import argparse
import datetime
import itertools
import math
import pathlib
import platform
import statistics
import time

import _rows
import torch

from hypersphere.data import PythonDocs
from hypersphere.models import GPTLanguageModel, NGPTLanguageModel
from hypersphere.training import CosineRate, LanguageModeling

ROWS = pathlib.Path(__file__).parent / "reports" / "ngpt.jsonl"
SIZES = {"depth": 2, "dim": 64, "heads": 2}
CONTEXT, BATCH = 32, 16
TUNING_STEPS, TUNING_SEED = 100, 100
STEPS, SEEDS = (75, 150, 300), (0, 1, 2)
GRID = (2e-3, 4e-3, 8e-3, 16e-3)
ARMS = {
    "GPT": {"std 0.02": {"init_std": 0.02}, "std 1/√dim": {"init_std": 1 / math.sqrt(SIZES["dim"])}},
    "nGPT": {"α 1/depth": {"step": 1 / SIZES["depth"]}, "α 0.05": {"step": 0.05}},
}
T_95 = {2: 4.303, 4: 2.776}  # quantiles of Student's distribution by degrees of freedom
Row = dict[str, object]


def measure(arm: str, variant: str, rate: float, steps: int, seed: int) -> Row:
    """Train one model and return its loss on the held-out text."""
    torch.manual_seed(seed)
    train, test = PythonDocs(True, CONTEXT), PythonDocs(False, CONTEXT)
    kind = GPTLanguageModel if arm == "GPT" else NGPTLanguageModel
    model = kind(len(train.classes), **SIZES, **ARMS[arm][variant])
    task = LanguageModeling(model, train, test, batch_size=BATCH, seed=seed)
    matrices = [parameter for parameter in model.parameters() if parameter.ndim > 1]
    scales = [parameter for parameter in model.parameters() if parameter.ndim < 2]
    groups = [{"params": matrices, "weight_decay": 0.1 if arm == "GPT" else 0.0}, {"params": scales}]
    optimizer = torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.95), weight_decay=0.0)
    schedule = CosineRate(warmup=steps // 10 if arm == "GPT" else 0)
    step, began = 0, time.process_time()
    while step < steps:
        for batch in task.loader:
            for group in optimizer.param_groups:
                group["lr"] = rate * schedule.factor(step, steps)
            optimizer.zero_grad()
            task(step, *batch)[0].backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            step += 1
            task.advance(step)
            if step == steps:
                break
    seconds = time.process_time() - began
    loss = task.eval().evaluate()["cross_entropy"]
    row: Row = {"arm": arm, "variant": variant, "rate": rate, "steps": steps, "seed": seed, "loss": loss}
    row |= {"cpu_seconds": round(seconds, 1), "parameters": task.summary()["parameters"]}
    row |= {"date": datetime.date.today().isoformat(), "threads": torch.get_num_threads()}
    return row | {"python": platform.python_version(), "torch": torch.__version__, **SIZES}


class Rows:
    """The recorded rows; missing rows are made until the time is over."""

    def __init__(self, seconds: float):
        self.end = time.monotonic() + seconds
        self.rows: list[Row] = _rows.read_rows(ROWS)

    def get(self, arm: str, variant: str, rate: float, steps: int, seed: int) -> Row:
        """Return the row of a run; make it if it does not exist."""
        run = {"arm": arm, "variant": variant, "rate": rate, "steps": steps, "seed": seed}
        for row in self.rows:
            if all(row[key] == value for key, value in run.items()):
                return row
        if time.monotonic() > self.end:
            raise SystemExit("the time is over; call again")
        row = measure(arm, variant, rate, steps, seed)
        self.rows.append(row)
        _rows.append_row(ROWS, row)
        print(f"{arm}, {variant}, rate {rate:g}, {steps} steps, seed {seed}: {row['loss']:.4f}", flush=True)
        return row


def tune(rows: Rows) -> dict[str, tuple[str, float]]:
    """Return the best variant and rate of each arm; the grid grows until no best rate is at its edge."""
    grid = list(GRID)
    while True:
        best = {}
        for arm, variants in ARMS.items():
            found = {
                (variant, rate): rows.get(arm, variant, rate, TUNING_STEPS, TUNING_SEED)["loss"]
                for rate in grid
                for variant in variants
            }
            best[arm] = min(found, key=lambda key: found[key])
        rates = [rate for _, rate in best.values()]
        if max(rates) == max(grid):
            grid.append(2 * max(grid))
        elif min(rates) == min(grid):
            grid.insert(0, min(grid) / 2)
        else:
            return best


def format_interval(values: list[float]) -> str:
    """Format a mean with its 95 % interval over seeds."""
    mean = statistics.mean(values)
    half = T_95[len(values) - 1] * statistics.stdev(values) / math.sqrt(len(values))
    return f"{mean:+.3f} [{mean - half:+.3f}, {mean + half:+.3f}]"


def count_steps_to(loss: float, curve: dict[int, float]) -> float | None:
    """Return the steps after which a curve reaches a loss, interpolated in log(steps); None outside the measured range."""
    points = sorted(curve.items())
    for (few, high), (many, low) in itertools.pairwise(points):
        if low <= loss <= high:
            return few * (many / few) ** ((high - loss) / (high - low))
    return None


def write_table(rows: Rows) -> None:
    """Write ``reports/ngpt.md``."""
    best = tune(rows)
    runs = {
        (arm, steps, seed): rows.get(arm, *best[arm], steps, seed) for arm in ARMS for steps in STEPS for seed in SEEDS
    }
    first = next(iter(runs.values()))
    sizes = ", ".join(f"{arm} {runs[arm, STEPS[0], 0]['parameters']:,}" for arm in ARMS)
    lines = ["# nGPT and an equally tuned GPT", ""]
    lines += [
        f"Characters of Python's help texts ({first['python']}), context {CONTEXT}, batch {BATCH}, {SIZES['depth']} blocks of"
    ]
    lines += [
        f"dimension {SIZES['dim']}; parameters: {sizes}. One thread, torch {first['torch']}, {first['date']}. Made by"
    ]
    lines += ["`python benchmarks/ngpt.py` from `ngpt.jsonl`, which has every run.", ""]
    lines += [f"## Tuning: loss after {TUNING_STEPS} steps, one seed that is not compared", ""]
    grid = sorted({float(row["rate"]) for row in rows.rows if row["seed"] == TUNING_SEED})  # type: ignore[arg-type]
    lines += ["| model | start | " + " | ".join(f"{rate:g}" for rate in grid) + " |", "|" + "---|" * (len(grid) + 2)]
    for arm, variants in ARMS.items():
        for variant in variants:
            cells = []
            for rate in grid:
                loss = rows.get(arm, variant, rate, TUNING_STEPS, TUNING_SEED)["loss"]
                cells.append(f"**{loss:.3f}**" if best[arm] == (variant, rate) else f"{loss:.3f}")
            lines.append(f"| {arm} | {variant} | " + " | ".join(cells) + " |")
    lines += ["", "## Loss on held-out text (nats per character), mean over three seeds", ""]
    lines += ["| steps | GPT | nGPT | nGPT − GPT, paired, 95 % | CPU seconds GPT / nGPT |", "|---|---|---|---|---|"]
    for steps in STEPS:
        losses = {arm: [float(runs[arm, steps, seed]["loss"]) for seed in SEEDS] for arm in ARMS}  # type: ignore[arg-type]
        means = " | ".join(f"{statistics.mean(losses[arm]):.3f}" for arm in ARMS)
        differences = [n - g for n, g in zip(losses["nGPT"], losses["GPT"], strict=True)]
        seconds = " / ".join(
            f"{statistics.mean(float(runs[arm, steps, seed]['cpu_seconds']) for seed in SEEDS):.0f}"  # type: ignore[arg-type]
            for arm in ARMS
        )
        lines.append(f"| {steps} | {means} | {format_interval(differences)} | {seconds} |")
    lines += ["", "## Steps to equal loss", ""]
    curves = {
        (arm, seed): {steps: float(runs[arm, steps, seed]["loss"]) for steps in STEPS}  # type: ignore[arg-type]
        for arm in ARMS
        for seed in SEEDS
    }
    last = STEPS[-1]
    lead = statistics.mean(curves["GPT", seed][last] - curves["nGPT", seed][last] for seed in SEEDS)
    slow, fast = ("GPT", "nGPT") if lead > 0 else ("nGPT", "GPT")
    needed = [count_steps_to(curves[slow, seed][last], curves[fast, seed]) for seed in SEEDS]
    shown = ", ".join("outside the measured lengths" if steps is None else f"{steps:.0f}" for steps in needed)
    lines.append(
        f"{fast} reaches the loss of {slow} after {last} steps in (seeds {', '.join(map(str, SEEDS))}): {shown} steps."
    )
    if None not in needed:
        logs = [math.log2(last / steps) for steps in needed if steps is not None]
        mean, half = statistics.mean(logs), T_95[len(logs) - 1] * statistics.stdev(logs) / math.sqrt(len(logs))
        low, middle, high = (2 ** (mean + side * half) for side in (-1, 0, 1))
        lines.append(f"Ratio of steps {middle:.2f} [{low:.2f}, {high:.2f}] (95 %, paired over seeds).")
        each = [float(runs[arm, last, seed]["cpu_seconds"]) / last for arm in (fast, slow) for seed in SEEDS]  # type: ignore[arg-type]
        cost = statistics.mean(each[: len(SEEDS)]) / statistics.mean(each[len(SEEDS) :])
        lines.append(
            f"A step of {fast} takes {cost:.2f} of the CPU time of a step of {slow}, so the ratio of times is {middle / cost:.2f}."
        )
    text = "\n".join(lines) + "\n"
    ROWS.with_suffix(".md").write_text(text)
    print(text)


def main() -> None:
    """Make the missing rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["tune", "compare", "table"])
    parser.add_argument("--seconds", type=float, default=540.0, help="start no run after this time (%(default)s)")
    args = parser.parse_args()
    rows = Rows(args.seconds)
    if args.what == "table":
        return write_table(rows)
    best = tune(rows)
    print(best)
    if args.what == "compare":
        for seed in SEEDS:
            for steps in STEPS:
                for arm in ARMS:
                    rows.get(arm, *best[arm], steps, seed)


if __name__ == "__main__":
    main()
