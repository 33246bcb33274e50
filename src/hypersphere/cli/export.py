"""``hypersphere export EMBEDDER --onnx FILE | --hub FOLDER``: convert an embedder for other runtimes or for the hub."""

import argparse
import json
from pathlib import Path
from typing import Any

from .embedder_options import EMBEDDER_HELP, add_embedder_options, load_embedder

MAX_COMPARED_IMAGES = 32  # for the comparison of an exported graph with torch


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the embedder and the format to write."""
    parser.add_argument("embedder", metavar="EMBEDDER", help=EMBEDDER_HELP)
    kind = parser.add_mutually_exclusive_group(required=True)
    kind.add_argument(
        "--onnx", type=Path, metavar="FILE", help="write an ONNX graph, and compare its features with those of PyTorch"
    )
    kind.add_argument(
        "--hub",
        type=Path,
        metavar="FOLDER",
        help="write a folder for the hub: config.json, model.safetensors and README.md",
    )
    parser.add_argument(
        "--images", metavar="SOURCE", help="with --onnx: pictures for the comparison (default: scikit-learn's digits)"
    )
    parser.add_argument(
        "--report",
        type=Path,
        metavar="FILE",
        help="with --hub: report.json of `hypersphere evaluate`, for the model card (default: report.json of the run)",
    )
    parser.add_argument(
        "--license", "--licence", dest="licence", metavar="NAME", help="with --hub: license of the weights, such as mit"
    )
    parser.add_argument("--title", metavar="TEXT", help="with --hub: title of the model card")
    parser.add_argument(
        "--push", metavar="OWNER/NAME", help="with --hub: also upload the folder to the hub under this name"
    )
    parser.add_argument(
        "--public", action="store_true", help="with --push: make the repository public (default: private)"
    )
    add_embedder_options(parser)


def run(args: argparse.Namespace) -> int:
    """Write the requested format and print the result of its check."""
    other_format = {"--images": args.images} if args.hub else {"--report": args.report, "--licence": args.licence}
    other_format |= {} if args.hub else {"--title": args.title, "--push": args.push}
    unusable = [name for name, value in other_format.items() if value is not None]
    if unusable:
        raise ValueError(f"{unusable[0]} needs {'--onnx' if args.hub else '--hub'}")
    embedder = load_embedder(args, args.embedder)
    (to_hub if args.hub else to_onnx)(args, embedder)
    return 0


def to_onnx(args: argparse.Namespace, embedder: Any) -> None:
    """Write the graph and print the largest difference between its features and those of torch."""
    from ..recognition import export_onnx

    if not args.onnx.absolute().parent.is_dir():
        raise ValueError(f"there is no folder {args.onnx.absolute().parent} to write {args.onnx.name} into")
    pixels, origin = prepare_samples(args.images, embedder)
    written = export_onnx(embedder, args.onnx, pixels)
    print(
        f"{written.path}: {written.size:,} bytes; features of {written.images} images of {origin} "
        f"differ from torch by at most {written.difference:.1e} of their length"
    )
    print(f"{written.path}.json: the preprocessing before the graph")


def to_hub(args: argparse.Namespace, embedder: Any) -> None:
    """Write the folder, and upload it if requested."""
    from ..recognition import push_hub_folder, write_hub_folder

    if args.licence is None:
        raise ValueError("--hub needs --license, the license of the weights as the hub spells it, such as mit or other")
    report, file = None, args.report or find_run_report(args.embedder)
    if file is not None:
        try:
            report = json.loads(file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{file} is not a report.json: {error}") from error
    write_hub_folder(embedder, args.hub, licence=args.licence, title=args.title, report=report)
    print(
        f"{args.hub}: config.json, model.safetensors and README.md, read again as embedder {embedder.fingerprint[:12]}"
    )
    if args.push is not None:
        print(f"pushed to {push_hub_folder(args.hub, args.push, private=not args.public)}")


def find_run_report(embedder: str) -> Path | None:
    """Return the report of a fit, given its run folder or the embedder file in it; None if there is no report.

    >>> find_run_report("characters") is None
    True
    """
    path = Path(embedder)
    folder = path if path.is_dir() else path.parent
    beside = [folder / name for name in ("embedder.safetensors", "choices.json", "report.json")]
    fitted = all(file.is_file() for file in beside) and path in (folder, beside[0])
    return beside[-1] if fitted else None


def prepare_samples(source: str | None, embedder: Any) -> tuple[Any, str]:
    """Return preprocessed samples to compare the features of, and their origin."""
    import torch

    from ..data import Digits, PicturePreprocessing
    from ..data.sources import open_source

    if source is None and not isinstance(embedder.preprocessing, PicturePreprocessing):
        generator = torch.Generator().manual_seed(0)
        return embedder.preprocessing.draw_stored(MAX_COMPARED_IMAGES, generator), "random numbers"
    if source is None:
        digits, _ = Digits().batch(torch.arange(MAX_COMPARED_IMAGES))
        try:
            return embedder.preprocessing.load(digits), "scikit-learn's digits"
        except ValueError as error:  # such as a crop larger than 8×8 pixels
            raise ValueError(f"digits cannot be prepared ({error}); give --images of your own") from error
    opened = open_source(source, identities=1)
    index = torch.linspace(0, len(opened) - 1, min(MAX_COMPARED_IMAGES, len(opened))).long().unique()
    if len(index) < 2:
        raise ValueError(f"--images {source} must hold at least two samples, got {len(opened)}")
    return opened.dataset(embedder.preprocessing).batch(index)[0], source
