"""``hypersphere gallery ACTION GALLERY …``: known identities in a file, or on a server by ``postgresql://…``."""

import argparse
import json
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from ..data.images import IMAGE_ENDINGS
from ..data.sources import Source, open_source
from ..recognition import Embedder, Features, Gallery, Match, embed, load
from ..recognition.features import score_all_pairs
from ..recognition.gallery import check_templates, source_name
from ..recognition.stores import is_server, normalize_name

PICTURES_PER_TRANSACTION = 1024  # embedded before they are enrolled or looked up


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the actions and their options."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")

    def action(
        name: str, text: str, *, images: bool = False, claim: bool = False, aliases: Sequence[str] = ()
    ) -> argparse.ArgumentParser:
        sub = actions.add_parser(name, help=text, description=text, aliases=aliases)
        sub.add_argument("gallery", help="gallery file, or postgresql://user@host/database#name")
        if images:
            sub.add_argument(
                "model",
                metavar="EMBEDDER",
                help="embedder file, run folder, hub folder or id, or a name from `hypersphere models`",
            )
        if claim:
            sub.add_argument("identity", help="the claimed identity")
        if images:
            sub.add_argument(
                "images",
                nargs="+",
                help="picture files, or sources of pictures: folders, tables, tar shards, .npz arrays",
            )
            sub.add_argument(
                "--skip-errors", action="store_true", help="skip unreadable pictures and list them on stderr"
            )
            sub.add_argument("--trust", action="store_true", help="allow the embedder to import your own code")
        return sub

    enrol = action("enrol", "enroll people; creates the gallery if it does not exist", images=True, aliases=["enroll"])
    enrol.add_argument(
        "--identity", help="name of the person on all pictures (default: the folder names, as in `hypersphere fit`)"
    )
    identify = action("identify", "print the name of the person on each picture, or unknown", images=True)
    identify.add_argument("-k", type=int, default=1, help="number of candidates to print (%(default)s)")
    identify.add_argument("--approximate", action="store_true", help="use the approximate index of a server")
    verify = action("verify", "print whether each picture shows this person", images=True, claim=True)
    identify.add_argument("--threshold", type=float, help="lowest cosine to accept (default: the calibrated threshold)")
    verify.add_argument(
        "--threshold", type=float, help="lowest cosine to accept (default: the threshold calibrated with --far)"
    )
    calibrate = action(
        "calibrate", "choose the threshold, using people who are not in the model's training set", images=True
    )
    rates = calibrate.add_mutually_exclusive_group()
    rates.add_argument(
        "--far",
        type=float,
        help="for verify: accepted share of pairs of different people; one folder per person (1e-3)",
    )
    rates.add_argument(
        "--fpir",
        type=float,
        help="for identify: share of strangers taken for a member; one folder per stranger, none of them enrolled. "
        "0.05 needs 59 people, 0.01 needs 299",
    )
    found = [identify, verify, calibrate, action("list", "list people and the number of their templates")]
    found.append(action("check", "verify all checksums"))
    for sub in found:
        sub.add_argument("--json", action="store_true", help="print JSON, one object per line")
    action("remove", "remove a person").add_argument("identity", help="name of the person")
    action("backup", "copy the gallery to a new file; safe while it is in use").add_argument(
        "target", type=Path, help="file to create"
    )
    index = action("index", "build an approximate index (HNSW) on a server and measure its recall")
    index.add_argument("-k", type=int, default=10, help="neighbors for the recall (%(default)s)")
    index.add_argument("--probes", type=int, default=100, help="templates to measure the recall with (%(default)s)")


def run(args: argparse.Namespace) -> int:
    """Carry out the action and print its result, one line per picture or identity."""
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.showwarning = lambda message, *_, **__: print(f"hypersphere gallery: {message}", file=sys.stderr)
        actions = {"identify": _identify, "verify": _verify, "calibrate": _calibrate}
        if args.action in ("enrol", "enroll"):
            _enrol(args, load(args.model, trust=args.trust))
            return 0
        if args.action in actions:
            if not is_server(args.gallery) and not Path(args.gallery).exists():  # said before the model is loaded
                raise ValueError(f"there is no gallery at {args.gallery}")
            model = load(args.model, trust=args.trust)
            with Gallery(args.gallery, model, create=False) as gallery:
                actions[args.action](args, gallery, model)
            return 0
        others = {"list": _list, "remove": _remove, "check": _check, "backup": _backup, "index": _index}
        with Gallery(args.gallery, create=False) as gallery:
            return others[args.action](args, gallery)


def _enrol(args: argparse.Namespace, model: Embedder) -> None:
    """Enrol whole identities in transactions of about a thousand pictures; a new gallery appears with the first."""
    gallery = None
    if is_server(args.gallery) or Path(args.gallery).exists():
        gallery = Gallery(args.gallery, model)  # one of another model is refused before anything is embedded
    try:
        for part in _split_by_identity(_open_people(args)):
            found = _embed(args, model, part)
            check_templates(found.features)  # so that a first enrolment that is refused leaves no gallery
            names = [normalize_name(args.identity or label) for label in found.labels]
            gallery = gallery or Gallery(args.gallery, model)
            gallery.enrol(names, found.features, [source_name(file) for file in found.files])
            for name in dict.fromkeys(names):
                # Acknowledged: it is on disk.
                print(f"enrolled {name} with {_count_templates(names.count(name))}", flush=True)
    finally:
        if gallery is not None:
            gallery.close()


def _open_people(args: argparse.Namespace) -> Source:
    """Open pictures of identities as every command does; single files do not say whose they are."""
    files = [path for path in args.images if Path(path).suffix.lower() in IMAGE_ENDINGS and Path(path).is_file()]
    if args.identity is None and files:
        raise ValueError(f"{files[0]} is a single file: give --identity, or a folder with one sub-folder per identity")
    return open_source(args.images, identities=1, loose="skip" if args.identity is None else "keep")


def _split_by_identity(people: Source) -> Iterator[Source]:
    """Yield parts of whole identities with about ``PICTURES_PER_TRANSACTION`` pictures."""
    rows: dict[str, list[int]] = {}
    for i, record in enumerate(people.records):
        rows.setdefault(normalize_name(record.label), []).append(i)
    part: list[int] = []
    for own in rows.values():
        part += own
        if len(part) >= PICTURES_PER_TRANSACTION:
            yield people.part(torch.tensor(part))
            part = []
    if part:
        yield people.part(torch.tensor(part))


def _identify(args: argparse.Namespace, gallery: Gallery, model: Embedder) -> None:
    for features in _embed_parts(args, model):
        found = gallery.identify(features.features, args.k, args.threshold, approximate=args.approximate)
        for file, answer in zip(features.files, found, strict=True):
            if args.json:
                candidates = [match._asdict() for match in answer.candidates]
                print(json.dumps({"file": file, "identity": answer.name, "candidates": candidates}))
            else:
                print("\t".join([file, answer.name or "unknown", *map(_format_match, answer.candidates)]))


def _verify(args: argparse.Namespace, gallery: Gallery, model: Embedder) -> None:
    for features in _embed_parts(args, model):
        matches = gallery.verify(args.identity, features.features, args.threshold)
        for file, match in zip(features.files, matches, strict=True):
            if args.json:
                print(json.dumps({"file": file, **match._asdict()}))
            else:
                print(f"{file}\t{'accepted' if match.accepted else 'rejected'}\t{match.score:.4f}")


def _calibrate(args: argparse.Namespace, gallery: Gallery, model: Embedder) -> None:
    if args.fpir is not None:
        strangers = open_source(args.images, identities=1)
        enrolled = set(map(normalize_name, strangers.classes)) & gallery.list().keys()
        if enrolled:
            raise ValueError(
                f"--fpir needs strangers, but {', '.join(sorted(enrolled)[:3])} of the images are enrolled"
            )
        features = _embed(args, model, strangers)
        found = gallery.calibrate(fpir=args.fpir, strangers=features.features, people=features.labels)
        what = f"a false positive identification rate of {args.fpir:g}"
        over = f"{len(features.files)} pictures of {found.people} people"
    else:
        far = 1e-3 if args.far is None else args.far
        scores, same = score_all_pairs(_embed(args, model, open_source(args.images)))
        found = gallery.calibrate(far=far, pairs=(scores, same))
        what, over = f"a false accept rate of {far:g}", f"{len(scores)} pairs"
    if args.json:
        print(json.dumps(found._asdict()))
        return
    assert found.measured is not None
    assert found.interval is not None
    low, high = found.interval
    print(
        f"threshold {found.threshold:.4f} for {what}; measured {found.measured:.2%} [{low:.2%}, {high:.2%}] on {over}"
    )


def _list(args: argparse.Namespace, gallery: Gallery) -> int:
    counts = gallery.list()
    if args.json:
        print(json.dumps(counts))
    else:
        print("".join(f"{identity}\t{count}\n" for identity, count in counts.items()), end="")
    return 0


def _remove(args: argparse.Namespace, gallery: Gallery) -> int:
    print(f"removed {args.identity} with {_count_templates(gallery.remove(args.identity))}")
    return 0


def _check(args: argparse.Namespace, gallery: Gallery) -> int:
    problems = gallery.check()
    if args.json:
        print(json.dumps({"ok": not problems, "problems": list(problems)}))
    elif problems:
        print("\n".join(problems))
    else:
        counts = gallery.list()
        print(f"all is well: {len(counts)} identities with {_count_templates(sum(counts.values()))}")
    return 1 if problems else 0


def _backup(args: argparse.Namespace, gallery: Gallery) -> int:
    gallery.backup(args.target)
    with Gallery(args.target, create=False, readonly=True) as copy:
        print(f"copied {len(copy)} identities to {args.target}")
    return 0


def _index(args: argparse.Namespace, gallery: Gallery) -> int:
    found = gallery.build_index(args.k, args.probes)
    print(
        f"the index finds {found.recall:.1%} of the {found.k} nearest templates, measured with {found.probes} of them"
    )
    return 0


def _embed_parts(args: argparse.Namespace, model: Embedder) -> Iterator[Features]:
    source = open_source(args.images, identities=1, loose="keep")
    for part in torch.arange(len(source)).split(PICTURES_PER_TRANSACTION):
        yield _embed(args, model, source.part(part))


def _embed(args: argparse.Namespace, model: Embedder, source: Source) -> Features:
    features = embed(model, source, on_error="skip" if args.skip_errors else "raise")
    for file, reason in features.skipped.items():
        print(f"skipped {file}: {reason}", file=sys.stderr)
    return features


def _format_match(match: Match) -> str:
    return f"{match.identity} {match.score:.4f}"


def _count_templates(count: int) -> str:
    return f"{count} template" if count == 1 else f"{count} templates"
