"""Measure the small generative models on the sphere on the digits of scikit-learn.

    OMP_NUM_THREADS=1 python benchmarks/generative.py autoencoder   # power spherical against von Mises–Fisher codes
    OMP_NUM_THREADS=1 python benchmarks/generative.py flow          # flow matching on S^63, and on S² on a mixture
    python benchmarks/generative.py table

Every run is a row of ``reports/generative.jsonl`` and is not repeated; ``table`` writes ``reports/generative.md``. Differences
are paired over seeds: both posteriors see the same batches.
"""

import argparse
import datetime
import math
import pathlib
import statistics
import time

import _rows
import torch

from hypersphere.config import call
from hypersphere.data import Digits, InMemory
from hypersphere.evaluation import energy_distance
from hypersphere.geometry import PowerSpherical, normalize, uniform
from hypersphere.models import SphereVelocity, SphericalAutoencoder
from hypersphere.training import Config, CosineRate, SphereFlow, SphericalVAE, Task, build_task

ROWS = pathlib.Path(__file__).parent / "reports" / "generative.jsonl"
SEEDS = (0, 1, 2)
POSTERIORS = ("power_spherical", "von_mises_fisher")
AUTOENCODER_STEPS, FLOW_STEPS, RATE = 300, 1500, 2e-3
T_95 = 4.303  # Student's quantile for two degrees of freedom


def train(task: Task, steps: int) -> float:
    """Train with Adam and a cosine schedule, and return the CPU seconds."""
    optimizer, schedule = torch.optim.Adam(task.parameters(), lr=RATE), CosineRate()
    step, began = 0, time.process_time()
    task.train()
    while step < steps:
        for batch in task.loader:
            optimizer.param_groups[0]["lr"] = RATE * schedule.factor(step, steps)
            optimizer.zero_grad()
            task(step, *batch)[0].backward()
            optimizer.step()
            step += 1
            task.advance(step)
            if step == steps:
                break
    task.eval()
    return time.process_time() - began


def measure_autoencoder(posterior: str, seed: int) -> dict[str, float]:
    """Train an autoencoder with codes in R^8 and batches of 64, and return its figures on all 355 test digits."""
    torch.manual_seed(seed)
    model = call(SphericalAutoencoder, posterior=posterior, latent_dim=8)
    task = build_task(Config(task=call(SphericalVAE), backbone=model, normalize="unit", batch_size=64, seed=seed))
    seconds = train(task, AUTOENCODER_STEPS)
    return {**task.evaluate(), "cpu_seconds": round(seconds, 1)}


def draw_mixture(count: int, seed: int) -> InMemory:
    """Return points on two caps and a ring of S²."""
    source = torch.Generator().manual_seed(seed)
    means = normalize(torch.tensor([[0.0, 0.0, 1.0], [1.0, 1.0, 0.0]]))
    caps = PowerSpherical(means.repeat(count // 4, 1), torch.full((2 * (count // 4),), 60.0)).sample(generator=source)
    angle = 2 * math.pi * torch.rand(count - len(caps), generator=source)
    ring = torch.stack([0.9 * angle.cos(), 0.9 * angle.sin(), torch.full_like(angle, -(0.19**0.5))], 1)
    points = torch.cat([caps, ring])
    return InMemory(points, torch.zeros(len(points), dtype=torch.long), ("point",))


def measure_flow(data: str, seed: int) -> dict[str, float]:
    """Train a flow and return the energy distances of generated, uniform and training points to held-out points."""
    torch.manual_seed(seed)
    if data == "digits":
        model = call(SphereVelocity)
        task = build_task(Config(task=call(SphereFlow), backbone=model, normalize="unit", batch_size=128, seed=seed))
        training = normalize(Digits().data.flatten(1).float())
    else:
        task = SphereFlow(
            SphereVelocity(3, hidden=128), draw_mixture(4000, seed), draw_mixture(400, seed + 100), seed=seed
        )
        training = draw_mixture(4000, seed).data
    assert isinstance(task, SphereFlow)
    seconds = train(task, FLOW_STEPS)
    held, count = task.measured, len(task.measured)
    order = torch.randperm(len(training), generator=torch.Generator().manual_seed(seed))[:count]
    source = torch.Generator().manual_seed(seed)
    return {
        **task.evaluate(),
        "uniform": energy_distance(uniform(count, held.shape[1], generator=source), held),
        "training": energy_distance(training[order], held),
        "off_sphere": float((task.generate(count).norm(dim=1) - 1).abs().max()),
        "cpu_seconds": round(seconds, 1),
    }


def format_interval(values: list[float]) -> str:
    """Return the mean and its 95 % interval over seeds."""
    mean, half = statistics.mean(values), T_95 * statistics.stdev(values) / math.sqrt(len(values))
    return f"{mean:.2f} [{mean - half:.2f}, {mean + half:.2f}]"


def write_table(rows: list[dict]) -> None:
    """Write ``reports/generative.md``."""
    lines = [
        "# Generative models on the sphere",
        "",
        f"One thread, torch {rows[0]['torch']}, {rows[0]['date']}, seeds 0, 1, 2.",
    ]
    lines += [
        "Written by `python benchmarks/generative.py` from `generative.jsonl`.",
        "",
        "## Variational autoencoder",
        "",
    ]
    lines += [f"Digits of 8×8, codes on S^7, {AUTOENCODER_STEPS} steps of 64 images; test digits, nats per image.", ""]
    lines += [
        "| posterior | negative bound | reconstruction | divergence | log-likelihood | CPU seconds |",
        "|" + "---|" * 6,
    ]
    runs = {(row["name"], row["seed"]): row for row in rows}
    for name in POSTERIORS:
        arm_rows = [runs[name, seed] for seed in SEEDS]
        keys = ("negative_elbo", "reconstruction", "divergence", "log_likelihood", "cpu_seconds")
        lines.append(
            f"| {name} | " + " | ".join(f"{statistics.mean(row[key] for row in arm_rows):.2f}" for key in keys) + " |"
        )
    differences = [
        runs[POSTERIORS[1], seed]["negative_elbo"] - runs[POSTERIORS[0], seed]["negative_elbo"] for seed in SEEDS
    ]
    lines += [
        "",
        f"von Mises–Fisher minus power spherical, negative bound, paired, 95 %: {format_interval(differences)}.",
        "",
    ]
    lines += [
        "## Flow matching",
        "",
        f"{FLOW_STEPS} steps of 128 points; energy distance to held-out points, mean of three seeds.",
        "",
    ]
    lines += ["| data | generated | uniform | the same number of training points | CPU seconds |", "|" + "---|" * 5]
    for name in ("digits", "mixture"):
        arm_rows = [runs[name, seed] for seed in SEEDS]
        keys = ("energy_distance", "uniform", "training")
        cells = " | ".join(f"{statistics.mean(row[key] for row in arm_rows):.4f}" for key in keys)
        lines.append(f"| {name} | {cells} | {statistics.mean(row['cpu_seconds'] for row in arm_rows):.0f} |")
    worst = max(runs[name, seed]["off_sphere"] for name in ("digits", "mixture") for seed in SEEDS)
    lines += ["", f"Largest deviation of a generated point's length from 1: {worst:.1e}."]
    text = "\n".join(lines) + "\n"
    ROWS.with_suffix(".md").write_text(text)
    print(text)


def main() -> None:
    """Run all runs without a row, or write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["autoencoder", "flow", "table"])
    args = parser.parse_args()
    rows = _rows.read_rows(ROWS)
    if args.what == "table":
        return write_table(rows)
    done = {(row["name"], row["seed"]) for row in rows}
    names, measure = (
        (POSTERIORS, measure_autoencoder) if args.what == "autoencoder" else (("digits", "mixture"), measure_flow)
    )
    for seed in SEEDS:
        for name in names:
            if (name, seed) in done:
                continue
            row = {"name": name, "seed": seed, **measure(name, seed), "date": datetime.date.today().isoformat()}
            row |= {"threads": torch.get_num_threads(), "torch": torch.__version__}
            _rows.append_row(ROWS, row)
            print(row, flush=True)


if __name__ == "__main__":
    main()
