"""Compare learned class weights, fixed prototypes of least energy and recent heads on handwritten digits.

    OMP_NUM_THREADS=1 python benchmarks/prototypes.py --record

Every arm trains the same small network (two hidden layers) for the same number of steps on the digits of scikit-learn. "confused groups"
is the share of test digits that are confused with a digit of another group of similar shapes.
"""

import argparse
import datetime
import json
import pathlib
import statistics
import tempfile
import time

import torch

from hypersphere import data, objectives
from hypersphere.training import Classification, Settings, Trainer, call

GROUPS = (0, 1, 2, 2, 1, 2, 0, 1, 0, 0)  # 0 6 8 9: loops; 1 4 7: strokes; 2 3 5: open curves
ARMS = {
    "learned (CosFace)": (16, call(objectives.CosFace, m=0.2, scale=16.0)),
    "fixed simplex": (16, call(objectives.PrototypeSoftmax, scale=16.0)),
    "fixed, three groups": (16, call(objectives.PrototypeSoftmax, scale=16.0, groups=GROUPS)),
    "learned (CosFace), 3 dimensions": (3, call(objectives.CosFace, m=0.2, scale=16.0)),
    "fixed, least energy, 3 dimensions": (3, call(objectives.PrototypeSoftmax, scale=16.0, s=1)),
    "Q-Margin": (16, call(objectives.QMargin, m=0.2, scale=16.0)),
    "von Mises–Fisher": (16, call(objectives.VMFSoftmax, scale=16.0)),
    "squared hinge": (16, call(objectives.Hinge, power=2)),
}
REPORT = pathlib.Path(__file__).parent / "reports" / "prototypes.json"


def measure(arm: str, seed: int) -> dict[str, float]:
    """Train once; return accuracy and confused groups in percent, and the CPU seconds."""
    dim, head = ARMS[arm]
    torch.manual_seed(seed)
    train, test = data.Digits(train=True), data.Digits(train=False)
    layers = torch.nn
    body = layers.Sequential(
        layers.Flatten(),
        layers.Linear(train.data[0].numel(), 64),
        layers.ReLU(),
        layers.Linear(64, 64),
        layers.ReLU(),
        layers.Linear(64, dim),
    )
    prepare = data.PicturePreprocessing(size=tuple(train.data.shape[2:]), channels=1, mean=0.3, std=0.37)
    task = Classification(body, head, train, test, preprocessing=prepare, batch_size=128, seed=seed)
    optimizer = call(torch.optim.Adam, lr=3e-3)
    settings = Settings(
        steps=300, seed=seed, evaluate_every=300, checkpoint_every=300, pictures=False, threads=1, optimizer=optimizer
    )
    began = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        accuracy = Trainer(task, folder, settings).run()["accuracy"]
    features = task.eval().embed(test)
    predicted = task.model.classifier.predict(features)
    groups = torch.tensor(GROUPS)
    return {
        "accuracy": accuracy,
        "confused groups": 100 * (groups[predicted] != groups[test.labels]).double().mean().item(),
        "cpu seconds": time.process_time() - began,
    }


def main() -> None:
    """Print the means, and write the report with ``--record``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--record", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows = {arm: [measure(arm, seed) for seed in range(args.seeds)] for arm in ARMS}
    for arm, found in rows.items():
        means = {name: statistics.mean(row[name] for row in found) for name in found[0]}
        print(arm, *(f"{name} {value:.2f}" for name, value in means.items()), sep="; ")
    if args.record:
        content = {"date": datetime.date.today().isoformat(), "threads": 1, "seeds": args.seeds, "rows": rows}
        REPORT.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
