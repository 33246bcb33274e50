"""The embedder that ships with the package as ``hypersphere.load("characters")``: how it is made and what it reaches.

    HYPERSPHERE_DATA=… python benchmarks/characters.py --threads 1 --package

Trains on Omniglot's 964 background characters, each in four orientations, and measures the 659 others. A killed run goes on
where it was. With ``--package`` the embedder and its card take their place in the package.
"""

import argparse
import pathlib

from hypersphere.config import call
from hypersphere.experiments.recipes.chapter2 import open_set
from hypersphere.models import sphereface4
from hypersphere.objectives import ArcFace
from hypersphere.training import Config, Experiment, Selection, replace


def config(threads: int) -> Config:
    """The recipe for unseen characters with turned ones as classes, at widths that keep the file below 2 MB."""
    model = call(sphereface4, widths=(32, 64, 128, 224), feature_dim=128, norm="batch")
    found = open_set("laptop", call(ArcFace, m=0.25, scale=24.0))
    samples = Selection(rotations=True)
    every = {"evaluate_every": 6000, "checkpoint_every": 500, "log_every": 100}
    return replace(found, name="characters", steps=6000, model=model, samples=samples, threads=threads, **every)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--runs", type=pathlib.Path, default=pathlib.Path("runs/characters"), help="the run's folder")
    options.add_argument("--threads", type=int, default=1)
    args = options.parse_args()
    experiment = Experiment(config(args.threads), args.runs)
    print(experiment.run(lambda step, row: print(step, row, flush=True)))


if __name__ == "__main__":
    main()
