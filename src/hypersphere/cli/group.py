"""``hypersphere group PHOTOS -o ALBUM``: group photographs by identity without labels."""

import argparse
import json
import math
import sys
from pathlib import Path

import torch

from ..evaluation.score_calibration import LogisticCalibration
from ..recognition import Embedder, Gallery
from ..recognition.album import Album
from ..recognition.grouping import DEFAULT_PRIOR
from ..recognition.grouping_calibration import find_calibration, measure_calibration
from .embedder_options import EMBEDDER_HELP, add_embedder_options, load_embedder
from .gallery_options import add_key_option, check_key_option

CLEAR_COSINE = 0.9  # a useful prior joins two samples with this cosine


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the photographs, the album and the embedder."""
    parser.add_argument("photos", nargs="+", metavar="PHOTOS", help="photographs: files, folders, tables or tar shards")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="ALBUM",
        help="album file; new photographs are added to an existing album, which keeps its names",
    )
    parser.add_argument(
        "--embedder",
        default="sface",
        help=f"{EMBEDDER_HELP} (default: %(default)s)",
    )
    parser.add_argument("--gallery", help="name groups after the people enrolled in this gallery")
    add_key_option(parser)
    parser.add_argument(
        "--calibration",
        metavar="LABELED",
        help="pictures of other people, one folder per person, to calibrate the embedder with; required for an embedder of "
        "your own",
    )
    parser.add_argument(
        "--prior",
        type=float,
        default=DEFAULT_PRIOR,
        metavar="PROBABILITY",
        help="prior probability that two faces show the same person; a lower value gives smaller, purer groups "
        "(default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    add_embedder_options(parser)


def run(args: argparse.Namespace) -> int:
    """Add the photographs, group all samples and print the numbers."""
    if not 0 < args.prior < 1:
        raise ValueError(f"--prior must be between 0 and 1, got {args.prior}")
    check_key_option(args)
    embedder = load_embedder(args, args.embedder)
    calibration = _choose_calibration(args, embedder)
    with Album(args.output) as album:
        if args.gallery:
            with Gallery(args.gallery, embedder, create=False, readonly=True, key=args.key_file) as gallery:
                people = album.add_gallery(gallery)
            print(f"groups may be named after {people} people of {args.gallery}", file=sys.stderr)
        added = album.add(args.photos, embedder, calibration=calibration, prior=args.prior, progress=_show_progress)
        groups = album.groups()
        result = {
            "album": str(args.output),
            "photographs_added": added.photographs,
            "photographs_known": added.known,
            "samples_added": added.samples,
            "samples": len(album.samples()),
            "groups": len(groups),
            "named_groups": sum(group.name is not None for group in groups),
            "unassigned": len(album.unassigned()),
            "problems": added.problems,
        }
    note = (
        _explain_no_groups(calibration, args.prior) if not groups and len(added.problems) < added.photographs else None
    )
    if args.json:
        print(json.dumps({**result, "note": note}, ensure_ascii=False))
        return 0
    for path, reason in added.problems.items():
        print(f"not usable: {path}: {_shorten(path, reason)}", file=sys.stderr)
    print(
        f"{args.output}: {result['photographs_added']} photographs added, {result['photographs_known']} known already, "
        f"{len(added.problems)} not usable\n"
        f"{result['samples']} samples in {result['groups']} groups ({result['named_groups']} named), "
        f"{result['unassigned']} in no group\n"
        f"next: {note or f'hypersphere serve --album {args.output}'}"
    )
    return 0


def _explain_no_groups(calibration: LogisticCalibration, prior: float) -> str:
    """Return the reason why no samples were grouped, and what to do."""
    identical, clear = (float(calibration.probability(torch.tensor(cosine), prior)) for cosine in (1.0, CLEAR_COSINE))
    if clear > 0.5:
        return "no two samples are similar enough to be one identity; add photographs of the same identities"
    larger = 1 / (1 + math.exp(float(calibration.log_odds(torch.tensor(CLEAR_COSINE)))))
    return (
        f"nothing can be grouped with --prior {prior:g}: even identical samples have a probability of only {identical:.0%} "
        f"to show one identity; try --prior {larger:.1g} and look at the groups, or use another embedder"
    )


def _choose_calibration(args: argparse.Namespace, embedder: Embedder) -> LogisticCalibration:
    return measure_calibration(embedder, args.calibration) if args.calibration else find_calibration(embedder)


def _shorten(path: str, reason: str) -> str:
    """Return a reason without the path that it starts with."""
    name, colon, rest = reason.partition(": ")
    return rest if colon and path.endswith(name) else reason


def _show_progress(done: int, total: int) -> None:
    if not sys.stderr.isatty():
        return
    end = "\n" if done == total else ""
    print(f"\r{done} of {total} photographs", end=end, file=sys.stderr, flush=True)
