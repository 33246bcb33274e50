"""``hypersphere embed MODEL images… -o features.safetensors``: features of image files."""

import argparse
from pathlib import Path

from ..recognition import embed, load_model, save_features


def configure(parser: argparse.ArgumentParser) -> None:
    """A model file, images and folders, and where the features go."""
    parser.add_argument("model", type=Path, help="model file written by hypersphere.evaluation.save_model")
    parser.add_argument("images", type=Path, nargs="+", help="image files, or folders searched for images")
    parser.add_argument("-o", "--output", type=Path, required=True, help="safetensors file to write")
    parser.add_argument("--batch", type=int, default=64, help="images at a time (%(default)s)")


def run(args: argparse.Namespace) -> int:
    """Embed and write; prints how many features of which dimension."""
    if not args.output.absolute().parent.is_dir():
        raise ValueError(f"there is no folder {args.output.absolute().parent} to write {args.output.name} into")
    features = embed(load_model(args.model), args.images, args.batch)
    save_features(features, args.output)
    count, dim = features.features.shape
    print(f"{count} features of dimension {dim} of model {features.fingerprint[:12]} in {args.output}")
    return 0
