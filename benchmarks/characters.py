"""The embedder that ships with the package as ``hypersphere.load("characters")``: how it is made and what it reaches.

    HYPERSPHERE_DATA=… python benchmarks/characters.py --threads 1 --package

Trains on Omniglot's 964 background characters, each in four orientations, and measures the 659 others. A killed run goes on
where it was. With ``--package`` the embedder and its card take their place in the package.
"""

import argparse
import pathlib

from hypersphere.config import call
from hypersphere.data import Omniglot
from hypersphere.evaluation import Figure
from hypersphere.files import write_text
from hypersphere.models import sphereface4
from hypersphere.objectives import ArcFace
from hypersphere.recipes.chapter2 import open_set
from hypersphere.recognition import Embedder, evaluate
from hypersphere.recognition.loading import PRETRAINED
from hypersphere.training import Config, Experiment, Selection, replace


def config(threads: int) -> Config:
    """The recipe for unseen characters with turned ones as classes, at widths that keep the file below 2 MB."""
    model = call(sphereface4, widths=(32, 64, 128, 224), feature_dim=128, norm="batch")
    found = open_set("laptop", call(ArcFace, m=0.25, scale=24.0))
    samples = Selection(rotations=True)
    every = {"evaluate_every": 6000, "checkpoint_every": 500, "log_every": 100}
    return replace(found, name="characters", steps=6000, backbone=model, samples=samples, threads=threads, **every)


def card(numbers: dict[str, Figure]) -> dict[str, str]:
    """What is known of the embedder: how it was made, and what it reaches on characters it has never seen."""
    names = ("EER", "TAR@FAR=1e-2", "TAR@FAR=1e-3", "rank-1", "TPIR@FPIR=1e-1", "TPIR@FPIR=1e-2", "mAP", "MAP@R")
    measured = {name: " ".join(cell for cell in numbers[name].cells()[1:] if cell) for name in names}
    thresholds = {name: numbers[name].cells()[1] for name in ("threshold@FAR=1e-2", "threshold@FAR=1e-3")}
    return {
        "name": "characters",
        "licence": "MIT, that of Omniglot (Lake, Salakhutdinov and Tenenbaum, 2015), whose drawings it was trained on",
        "trained on": "964 background characters of Omniglot, 20 drawings each, in four orientations as 3,856 classes, 28×28 pixels",
        "how": "SphereFace-4 of widths 32, 64, 128, 224 with batch normalization and 128 features; ArcFace m = 0.25, s = 24; "
        "6,000 steps of 128 by SGD with a cosine schedule, drawings turned, scaled, sheared and shifted a little; "
        "benchmarks/characters.py makes it again",
        "measured on": "the 659 evaluation characters of Omniglot, 20 drawings each, none of them trained on; single drawings, cosine",
        **measured,
        **thresholds,
        "meant for": "black ink on white, one character in the middle; trying galleries, not for decisions",
    }


def package(folder: pathlib.Path) -> None:
    """Measure the run's embedder on unseen characters and put it with its card where ``load`` finds it."""
    embedder = Embedder.load(folder / "embedder.safetensors")
    found = evaluate(embedder, Omniglot(background=False))
    print(found)
    numbers = {figure.name: figure for figure in found.figures()}
    embedder.card.clear()
    embedder.card.update(card(numbers))
    path = PRETRAINED / "characters.safetensors"
    path.parent.mkdir(exist_ok=True)
    embedder.save(path)
    lines = [f"| {key} | {value} |" for key, value in embedder.card.items()]
    write_text(path.with_suffix(".md"), "\n".join(["# characters", "", "| | |", "|---|---|", *lines, ""]))
    print(f"{path}: {path.stat().st_size:,} bytes")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--runs", type=pathlib.Path, default=pathlib.Path("runs/characters"), help="the run's folder")
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--package", action="store_true", help="measure the result and put it into the package")
    args = options.parse_args()
    experiment = Experiment(config(args.threads), args.runs)
    experiment.run(lambda step, row: print(step, row, flush=True))
    if args.package:
        package(args.runs)


if __name__ == "__main__":
    main()
