"""``hypersphere embed EMBEDDER images… -o features.safetensors``: features of image files."""

import argparse
import sys
from pathlib import Path

from ..recognition import embed, load, save_features


def configure(parser: argparse.ArgumentParser) -> None:
    """An embedder file, images and folders, and where the features go."""
    parser.add_argument("embedder", help="an embedder file, a run or hub folder, a hub id, or characters")
    parser.add_argument("images", type=Path, nargs="+", help="image files, or folders searched for images")
    parser.add_argument("-o", "--output", type=Path, required=True, help="file to write: .safetensors or .npy")
    parser.add_argument("--batch", type=int, default=64, help="images at a time (%(default)s)")
    parser.add_argument("--skip-errors", action="store_true", help="leave out files that cannot be read, and name them")
    parser.add_argument("--trust", action="store_true", help="import your own code that the embedder names")


def run(args: argparse.Namespace) -> int:
    """Embed and write; prints how many features of which dimension."""
    if not args.output.absolute().parent.is_dir():
        raise ValueError(f"there is no folder {args.output.absolute().parent} to write {args.output.name} into")
    if args.output.suffix not in (".safetensors", ".npy"):
        raise ValueError(f"--output must end in .safetensors or .npy, got {args.output.name}")
    embedder = load(args.embedder, trust=args.trust)
    features = embed(embedder, args.images, args.batch, skip_errors=args.skip_errors)
    for file, reason in features.skipped.items():
        print(f"skipped {file}: {reason}", file=sys.stderr)
    save_features(features, args.output)
    count, dim = features.features.shape
    print(f"{count} features of dimension {dim} of embedder {features.fingerprint[:12]} in {args.output}")
    return 0
