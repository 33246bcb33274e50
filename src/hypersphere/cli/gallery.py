"""``hypersphere gallery ACTION GALLERY …``: known identities in a file, or on a server by ``postgresql://…``."""

import argparse
import json
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from ..evaluation import pair_scores
from ..recognition import Embedder, Features, Gallery, Match, embed
from ..recognition.embedding import image_files
from ..recognition.stores import normal_name
from ..recognition.stores.store import SERVER

AT_ONCE = 1024  # images that are embedded before they are enrolled or looked up


def configure(parser: argparse.ArgumentParser) -> None:
    """One action, the gallery, and what the action needs."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")

    def action(name: str, text: str, *, images: bool = False, claim: bool = False) -> argparse.ArgumentParser:
        sub = actions.add_parser(name, help=text, description=text)
        sub.add_argument("gallery", help="the gallery's file, or postgresql://user@host/database#name")
        if images:
            sub.add_argument("model", type=Path, help="embedder file that makes the features")
        if claim:
            sub.add_argument("identity", help="the claimed identity")
        if images:
            sub.add_argument("images", type=Path, nargs="+", help="image files, or folders searched for images")
            sub.add_argument(
                "--skip-bad", action="store_true", help="leave out images that cannot be read, and name them"
            )
            sub.add_argument("--trust", action="store_true", help="import your own code that the embedder names")
        return sub

    enrol = action("enrol", "add templates of identities; a new gallery is made if there is none", images=True)
    enrol.add_argument("--identity", help="whose images they are; by default the name of each image's folder")
    identify = action("identify", "who is on each image, or unknown", images=True)
    identify.add_argument("-k", type=int, default=1, help="candidates to print (%(default)s)")
    identify.add_argument("--approximate", action="store_true", help="search by the index of a server's gallery")
    verify = action("verify", "is each image of this identity?", images=True, claim=True)
    for sub in (identify, verify):
        sub.add_argument("--threshold", type=float, help="least cosine to accept; by default the calibrated one")
    calibrate = action(
        "calibrate", "set the threshold from images of people that the model was not trained on", images=True
    )
    rates = calibrate.add_mutually_exclusive_group()
    rates.add_argument("--far", type=float, help="false accept rate of all pairs of images, one folder a person (1e-3)")
    rates.add_argument("--fpir", type=float, help="share of strangers, who are not enrolled, to be taken for somebody")
    found = [identify, verify, calibrate, action("list", "identities and the number of their templates")]
    found.append(action("check", "read everything and compare it with its checksums"))
    for sub in found:
        sub.add_argument("--json", action="store_true", help="print JSON, one object a line")
    action("remove", "forget an identity").add_argument("identity", help="whom to forget")
    action("backup", "copy to a new file while others use the gallery").add_argument(
        "target", type=Path, help="new file"
    )
    index = action("index", "build an approximate index (HNSW) of a server's gallery and measure its recall")
    index.add_argument("-k", type=int, default=10, help="neighbours that count (%(default)s)")
    index.add_argument("--probes", type=int, default=100, help="templates to measure with (%(default)s)")


def run(args: argparse.Namespace) -> int:
    """Do the action; its result is printed, one line for each image or identity."""
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.showwarning = lambda message, *_, **__: print(f"hypersphere gallery: {message}", file=sys.stderr)
        actions = {"identify": _identify, "verify": _verify, "calibrate": _calibrate}
        if args.action == "enrol":
            _enrol(args, Embedder.load(args.model, trust=args.trust))
            return 0
        if args.action in actions:
            Gallery(args.gallery, create=False).close()  # before anything is embedded
            model = Embedder.load(args.model, trust=args.trust)
            with Gallery(args.gallery, model.fingerprint, create=False) as gallery:
                actions[args.action](args, gallery, model)
            return 0
        others = {"list": _list, "remove": _remove, "check": _check, "backup": _backup, "index": _index}
        with Gallery(args.gallery, create=False) as gallery:
            return others[args.action](args, gallery)


def _enrol(args: argparse.Namespace, model: Embedder) -> None:
    if args.gallery.startswith(SERVER) or Path(args.gallery).exists():
        Gallery(args.gallery, model.fingerprint).close()  # one of another model is refused before anything is embedded
    people: dict[str, list[Path]] = {}
    for file in image_files(args.images):
        people.setdefault(normal_name(args.identity or _folder(file)), []).append(file)
    group: list[str] = []
    for i, name in enumerate(people):
        group.append(name)
        if sum(len(people[n]) for n in group) >= AT_ONCE or i == len(people) - 1:
            _enrol_group(args, model, {n: people[n] for n in group})
            group = []


def _enrol_group(args: argparse.Namespace, model: Embedder, people: dict[str, list[Path]]) -> None:
    """All images of some people in one transaction; a gallery is made only when there is something to put into it."""
    owner = {str(file): name for name, files in people.items() for file in files}
    features = _embedded(args, model, [file for files in people.values() for file in files])
    names = [owner[file] for file in features.files]
    with Gallery(args.gallery, model.fingerprint) as gallery:
        gallery.enrol(names, features.features, [_source(file) for file in features.files])
    for name in dict.fromkeys(names):
        print(f"enrolled {name} with {_templates(names.count(name))}", flush=True)  # acknowledged: it is on disk


def _identify(args: argparse.Namespace, gallery: Gallery, model: Embedder) -> None:
    for features in _all(args, model):
        found = gallery.identify(features.features, args.k, args.threshold, approximate=args.approximate)
        for file, matches in zip(features.files, found, strict=True):
            who = matches[0].identity if matches[0].accepted else None
            if args.json:
                print(json.dumps({"file": file, "identity": who, "candidates": [m._asdict() for m in matches]}))
            else:
                print("\t".join([file, who or "unknown", *map(_candidate, matches)]))


def _verify(args: argparse.Namespace, gallery: Gallery, model: Embedder) -> None:
    for features in _all(args, model):
        for file, match in zip(
            features.files, gallery.verify(args.identity, features.features, args.threshold), strict=True
        ):
            if args.json:
                print(json.dumps({"file": file, **match._asdict()}))
            else:
                print(f"{file}\t{'accepted' if match.accepted else 'rejected'}\t{match.score:.4f}")


def _calibrate(args: argparse.Namespace, gallery: Gallery, model: Embedder) -> None:
    features = _embedded(args, model, image_files(args.images))
    if args.fpir is not None:
        enrolled = sorted({normal_name(_folder(file)) for file in features.files} & gallery.list().keys())
        if enrolled:
            raise ValueError(f"--fpir needs strangers, but {', '.join(enrolled[:3])} of the images are enrolled")
        gallery.calibrate_fpir(features.features, args.fpir)
        what = f"a false positive identification rate of {args.fpir:g} on {len(features.files)} images of strangers"
    else:
        far = 1e-3 if args.far is None else args.far
        people = {name: i for i, name in enumerate(dict.fromkeys(map(_folder, features.files)))}
        who = torch.tensor([people[_folder(file)] for file in features.files])
        pairs = torch.combinations(torch.arange(len(who)))
        gallery.calibrate(pair_scores(features.features, pairs), who[pairs[:, 0]] == who[pairs[:, 1]], far)
        what = f"a false accept rate of {far:g} on {len(pairs)} pairs"
    found = gallery.calibration
    assert found is not None
    print(json.dumps(found._asdict()) if args.json else f"threshold {found.threshold:.4f} for {what}")


def _list(args: argparse.Namespace, gallery: Gallery) -> int:
    counts = gallery.list()
    if args.json:
        print(json.dumps(counts))
    else:
        print("".join(f"{identity}\t{count}\n" for identity, count in counts.items()), end="")
    return 0


def _remove(args: argparse.Namespace, gallery: Gallery) -> int:
    print(f"removed {args.identity} with {_templates(gallery.remove(args.identity))}")
    return 0


def _check(args: argparse.Namespace, gallery: Gallery) -> int:
    problems = gallery.check()
    if args.json:
        print(json.dumps({"ok": not problems, "problems": list(problems)}))
    elif problems:
        print("\n".join(problems))
    else:
        counts = gallery.list()
        print(f"all is well: {len(counts)} identities with {_templates(sum(counts.values()))}")
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


def _all(args: argparse.Namespace, model: Embedder) -> Iterator[Features]:
    files = image_files(args.images)
    for start in range(0, len(files), AT_ONCE):
        yield _embedded(args, model, files[start : start + AT_ONCE])


def _embedded(args: argparse.Namespace, model: Embedder, files: Sequence[Path]) -> Features:
    features = embed(model, files, skip_errors=args.skip_bad)
    for file, reason in features.skipped.items():
        print(f"skipped {file}: {reason}", file=sys.stderr)
    return features


def _candidate(match: Match) -> str:
    return f"{match.identity} {match.score:.4f}"


def _templates(count: int) -> str:
    return f"{count} template" if count == 1 else f"{count} templates"


def _folder(file: Any) -> str:
    return Path(file).absolute().parent.name


def _source(file: str) -> str:
    """Where an image is, as text that every store can keep."""
    return os.fsencode(Path(file).absolute()).decode("utf-8", "backslashreplace")
