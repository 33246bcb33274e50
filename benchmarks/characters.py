"""Train and measure the embedder that ships with the package as ``hypersphere.load("characters")``.

    HYPERSPHERE_DATA=… python benchmarks/characters.py --threads 1 --package

Trains on Omniglot's 964 background characters in four orientations each, and measures on the 659 others. A killed run resumes.
``--package`` writes the embedder and its card into the package.
"""

import argparse
import pathlib

from hypersphere.config import call
from hypersphere.data import Omniglot
from hypersphere.evaluation import Figure
from hypersphere.files import write_text
from hypersphere.models import sphereface4
from hypersphere.objectives import ArcFace
from hypersphere.recipes.chapter2 import make_open_set
from hypersphere.recognition import Embedder, evaluate
from hypersphere.recognition.loading import PRETRAINED
from hypersphere.training import Config, Experiment, Selection, replace


def build_config(threads: int) -> Config:
    """Return the recipe for unseen characters with rotations as further classes; its widths keep the file below 2 MB."""
    model = call(sphereface4, widths=(32, 64, 128, 224), feature_dim=128, norm="batch")
    recipe = make_open_set("laptop", call(ArcFace, m=0.25, scale=24.0))
    samples = Selection(rotations=True)
    every = {"evaluate_every": 6000, "checkpoint_every": 500, "log_every": 100}
    return replace(recipe, name="characters", steps=6000, backbone=model, samples=samples, threads=threads, **every)


def build_card(numbers: dict[str, Figure]) -> dict[str, str]:
    """Return the card of the embedder: its training and its results on unseen characters."""
    names = ("EER", "TAR@FAR=1e-2", "TAR@FAR=1e-3", "rank-1", "TPIR@FPIR=1e-1", "TPIR@FPIR=1e-2", "mAP", "MAP@R")
    measured = {name: " ".join(cell for cell in numbers[name].cells()[1:] if cell) for name in names}
    thresholds = {name: numbers[name].cells()[1] for name in ("threshold@FAR=1e-2", "threshold@FAR=1e-3")}
    return {
        "name": "characters",
        "licence": "MIT, the license of its training data, Omniglot (Lake, Salakhutdinov and Tenenbaum, 2015)",
        "trained on": "964 background characters of Omniglot, 20 drawings each, in four orientations as 3,856 classes, 28×28 pixels",
        "how": "SphereFace-4 of widths 32, 64, 128, 224 with batch normalization and 128 features; ArcFace m = 0.25, s = 24; "
        "6,000 steps of 128 samples, SGD with a cosine schedule, small rotations, scalings, shears and shifts; "
        "benchmarks/characters.py repeats the training",
        "measured on": "the 659 evaluation characters of Omniglot, 20 drawings each, none of them in the training set; "
        "single drawings, cosine",
        **measured,
        **thresholds,
        "meant for": "black ink on white, one character in the center; to try galleries, not for decisions",
    }


def write_package(folder: pathlib.Path) -> None:
    """Measure the embedder of the run on unseen characters, and write it with its card into the package."""
    embedder = Embedder.load(folder / "embedder.safetensors")
    result = evaluate(embedder, Omniglot(background=False))
    print(result)
    numbers = {figure.name: figure for figure in result.figures()}
    embedder.card.clear()
    embedder.card.update(build_card(numbers))
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
    options.add_argument("--package", action="store_true", help="measure the embedder and write it into the package")
    args = options.parse_args()
    experiment = Experiment(build_config(args.threads), args.runs)
    experiment.run(lambda step, row: print(step, row, flush=True))
    if args.package:
        write_package(args.runs)


if __name__ == "__main__":
    main()
