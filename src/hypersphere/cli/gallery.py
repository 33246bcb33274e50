"""``hypersphere gallery enrol | identify | verify | calibrate | list | remove``: known identities in one file."""

import argparse
from pathlib import Path
from typing import Any

import torch

from ..evaluation import pair_scores
from ..recognition import Embedder, Features, Gallery, embed


def configure(parser: argparse.ArgumentParser) -> None:
    """One action, the gallery's file, and what the action needs."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    images: dict[str, Any] = {"type": Path, "nargs": "+", "help": "image files, or folders searched for images"}

    def action(name: str, text: str, *, model: bool = True) -> argparse.ArgumentParser:
        sub = actions.add_parser(name, help=text, description=text)
        sub.add_argument("gallery", type=Path, help="the gallery's file")
        if model:
            sub.add_argument("model", type=Path, help="model file that makes the features")
        return sub

    enrol = action("enrol", "add templates of identities; a new gallery is made if there is none")
    enrol.add_argument("images", **images)
    enrol.add_argument("--identity", help="whose images they are; by default the name of each image's folder")
    for name, text in (("identify", "who is on each image, or unknown"), ("verify", "is each image of this identity?")):
        sub = action(name, text)
        if name == "verify":
            sub.add_argument("identity", help="the claimed identity")
        sub.add_argument("images", **images)
        sub.add_argument("--threshold", type=float, help="least cosine to accept; by default the calibrated one")
        if name == "identify":
            sub.add_argument("-k", type=int, default=1, help="candidates to print (%(default)s)")
    calibrate = action("calibrate", "set the threshold from all pairs of images of known people, one folder each")
    calibrate.add_argument("images", **images)
    calibrate.add_argument("--far", type=float, default=1e-3, help="false accept rate to keep (%(default)s)")
    action("list", "identities and the number of their templates", model=False)
    action("remove", "forget an identity", model=False).add_argument("identity", help="whom to forget")


def run(args: argparse.Namespace) -> int:
    """Do the action; its result is printed, one line for each image or identity."""
    actions = {"enrol": _enrol, "identify": _identify, "verify": _verify, "calibrate": _calibrate}
    if args.action in actions:
        model = Embedder.load(args.model)
        features = embed(model, args.images)
        with _open(args, model) as gallery:
            actions[args.action](args, gallery, features)
        return 0
    with Gallery(args.gallery, create=False) as gallery:
        if args.action == "remove":
            print(f"removed {args.identity} with {_templates(gallery.remove(args.identity))}")
        else:
            for identity, count in gallery.list().items():
                print(f"{identity}\t{count}")
    return 0


def _open(args: argparse.Namespace, model: Embedder) -> Gallery:
    return Gallery(args.gallery, model.fingerprint, create=args.action == "enrol")


def _enrol(args: argparse.Namespace, gallery: Gallery, features: Features) -> None:
    by_identity: dict[str, list[int]] = {}
    for i, file in enumerate(features.files):
        by_identity.setdefault(args.identity or _folder(file), []).append(i)
    for identity, rows in by_identity.items():
        gallery.enrol(identity, features.features[rows], [features.files[i] for i in rows])
        print(f"enrolled {identity} with {_templates(len(rows))}", flush=True)  # an acknowledgement: it is on disk


def _identify(args: argparse.Namespace, gallery: Gallery, features: Features) -> None:
    for file, matches in zip(features.files, gallery.identify(features.features, args.k, args.threshold), strict=True):
        who = matches[0].identity if matches[0].accepted else "unknown"
        print("\t".join([file, who, *(f"{m.identity} {m.score:.4f}" for m in matches)]))


def _verify(args: argparse.Namespace, gallery: Gallery, features: Features) -> None:
    results = gallery.verify(args.identity, features.features, args.threshold)
    for file, match in zip(features.files, results, strict=True):
        print(f"{file}\t{'accepted' if match.accepted else 'rejected'}\t{match.score:.4f}")


def _calibrate(args: argparse.Namespace, gallery: Gallery, features: Features) -> None:
    people = {name: i for i, name in enumerate(dict.fromkeys(map(_folder, features.files)))}
    who = torch.tensor([people[_folder(file)] for file in features.files])
    pairs = torch.combinations(torch.arange(len(who)))
    threshold = gallery.calibrate(pair_scores(features.features, pairs), who[pairs[:, 0]] == who[pairs[:, 1]], args.far)
    print(f"threshold {threshold:.4f} for a false accept rate of {args.far:g} on {len(pairs)} pairs")


def _templates(count: int) -> str:
    return f"{count} template" if count == 1 else f"{count} templates"


def _folder(file: str) -> str:
    return Path(file).absolute().parent.name
