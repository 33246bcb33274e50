"""``hypersphere embed EMBEDDER images… -o features.safetensors``: features of pictures."""

import argparse
from pathlib import Path

from ..recognition import embed, save_features
from .embedder_options import EMBEDDER_HELP, add_embedder_options, load_embedder
from .source_options import IMAGES_HELP, print_skipped


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the embedder, the pictures and the output file."""
    parser.add_argument("embedder", metavar="EMBEDDER", help=EMBEDDER_HELP)
    parser.add_argument("images", nargs="+", metavar="PICTURES", help=IMAGES_HELP)
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="FILE", help="file to write: .safetensors or .npy"
    )
    parser.add_argument("--batch", type=int, default=64, metavar="N", help="batch size (default: %(default)s)")
    parser.add_argument("--skip-errors", action="store_true", help="skip unreadable files and list them on stderr")
    add_embedder_options(parser)


def run(args: argparse.Namespace) -> int:
    """Compute the features, write them, and print their number and dimension."""
    if not args.output.absolute().parent.is_dir():
        raise ValueError(f"there is no folder {args.output.absolute().parent} to write {args.output.name} into")
    if args.output.suffix not in (".safetensors", ".npy"):
        raise ValueError(f"--output must end in .safetensors or .npy, got {args.output.name}")
    embedder = load_embedder(args, args.embedder)
    features = embed(embedder, args.images, args.batch, on_error="skip" if args.skip_errors else "raise")
    print_skipped(features.skipped)
    save_features(features, args.output)
    count, dim = features.features.shape
    print(f"{count} features of dimension {dim} of embedder {features.fingerprint[:12]} in {args.output}")
    return 0
