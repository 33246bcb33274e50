"""``hypersphere gallery ACTION GALLERY …``: a gallery of known identities, in a file or on a PostgreSQL server."""

import argparse
import json
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ..data import FaceQualityGate
from ..data.faces import CHOICES
from ..data.media import SAMPLE_ENDINGS
from ..data.sources import Source, open_source
from ..data.sources.source import OnError, list_missing
from ..recognition import Embedder, Features, Gallery, Identification, Match, embed
from ..recognition._audit import judge_new_template
from ..recognition.features import score_all_pairs
from ..recognition.gallery import check_templates, encode_source_path
from ..recognition.stores import is_server, normalize_name
from . import gallery_upkeep
from .embedder_options import EMBEDDER_HELP, add_embedder_options, load_embedder
from .gallery_options import GALLERY_HELP, add_key_option
from .source_options import IMAGES_HELP, print_skipped
from .terminal import add_action

PICTURES_PER_TRANSACTION = 1024  # pictures embedded before they are enrolled or identified


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the actions and their options."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")

    def action(
        name: str,
        text: str,
        example: str,
        *,
        images: bool = False,
        claim: bool = False,
        json: bool = False,
        aliases: Sequence[str] = (),
    ) -> argparse.ArgumentParser:
        sub = add_action(actions, name, text, f"hypersphere gallery {example}", aliases)
        sub.add_argument("gallery", metavar="GALLERY", help=GALLERY_HELP)
        add_key_option(sub)
        if json:
            sub.add_argument("--json", action="store_true", help="print JSON, one object per line")
        if images:
            sub.add_argument("model", metavar="EMBEDDER", help=EMBEDDER_HELP)
        if claim:
            sub.add_argument("identity", metavar="NAME", help="name of the claimed person")
        if images:
            sub.add_argument("images", nargs="+", metavar="PICTURES", help=IMAGES_HELP)
            sub.add_argument(
                "--skip-errors",
                action="store_true",
                help="skip unreadable pictures and pictures without a face, and list them on stderr",
            )
            sub.add_argument(
                "--choose",
                choices=CHOICES,
                help="faces to use if a photograph shows several; refuse makes such a photograph an error (default: "
                f"{'all' if name == 'identify' else 'the setting of the embedder, usually largest'})",
            )
            add_embedder_options(sub)
        return sub

    enrol = action(
        "enrol",
        "enroll people, and create the gallery if it does not exist",
        "enrol known.db sface people/",
        images=True,
        aliases=["enroll"],
    )
    enrol.add_argument(
        "--identity", metavar="NAME", help="name of the person on all pictures (default: the name of each folder)"
    )
    enrol.add_argument(
        "--quality",
        choices=("warn", "refuse", "off"),
        default="warn",
        help="treatment of faces that are small, blurred, turned away, dark or bright (default: %(default)s)",
    )
    identify = action(
        "identify",
        "print the name of the person on each picture or face, or unknown",
        "identify known.db sface party.jpg",
        images=True,
        json=True,
    )
    identify.add_argument(
        "-k", type=int, default=1, metavar="N", help="print the N best candidates (default: %(default)s)"
    )
    identify.add_argument(
        "--approximate",
        action="store_true",
        help="search with the approximate index of a gallery on a server, see `gallery index`",
    )
    identify.add_argument(
        "--rerank",
        action="store_true",
        help="order the candidates by the neighbors that they share with the picture (k-reciprocal re-ranking)",
    )
    identify.add_argument(
        "--threshold", type=float, metavar="COSINE", help="lowest cosine to accept (default: the calibrated threshold)"
    )
    verify = action(
        "verify",
        "print whether each picture shows one claimed person",
        'verify known.db sface "Ada Lovelace" visitor.jpg',
        images=True,
        claim=True,
        json=True,
    )
    verify.add_argument(
        "--threshold",
        type=float,
        metavar="COSINE",
        help="lowest cosine to accept (default: the threshold of `gallery calibrate --far`)",
    )
    calibrate = action(
        "calibrate",
        "choose and store a threshold, with pictures of people who are not in the training set of the embedder",
        "calibrate known.db sface strangers/ --fpir 0.05",
        images=True,
        json=True,
    )
    rates = calibrate.add_mutually_exclusive_group()
    rates.add_argument(
        "--far",
        type=float,
        metavar="RATE",
        help="for `verify`: the acceptable share of accepted pairs of different people, measured on PICTURES with one "
        "folder per person (default: 0.001)",
    )
    rates.add_argument(
        "--fpir",
        type=float,
        metavar="RATE",
        help="for `identify`: the acceptable share of strangers mistaken for an enrolled person, measured on PICTURES with "
        "one folder per stranger; 0.05 needs 59 strangers, 0.01 needs 299",
    )
    action("list", "list the enrolled people and the number of their templates", "list known.db", json=True)
    action("check", "check the files of the gallery for damage", "check known.db", json=True)
    remove = action("remove", "remove a person; see also `forget`", 'remove known.db "Ada Lovelace"')
    remove.add_argument("identity", metavar="NAME", help="name of the person")
    backup = action("backup", "copy the gallery to a new file, also while it is in use", "backup known.db copy.db")
    backup.add_argument("target", type=Path, metavar="FILE", help="file to create")
    index = action(
        "index",
        "build an approximate index (HNSW) of a gallery on a server, and measure its recall",
        "index postgresql://me@localhost/faces#staff",
    )
    index.add_argument(
        "-k",
        type=int,
        default=10,
        metavar="N",
        help="measure the recall of the N nearest templates (default: %(default)s)",
    )
    index.add_argument(
        "--probes",
        type=int,
        default=100,
        metavar="N",
        help="measure the recall with N templates (default: %(default)s)",
    )
    gallery_upkeep.configure(actions)


def run(args: argparse.Namespace) -> int:
    """Carry out the action and print its result, one line per picture or identity."""
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.showwarning = lambda message, *_, **__: print(f"hypersphere gallery: {message}", file=sys.stderr)
        if args.action in gallery_upkeep.ACTIONS:
            return gallery_upkeep.ACTIONS[args.action](args)
        actions = {"identify": _identify, "verify": _verify, "calibrate": _calibrate}
        if args.action in ("enrol", "enroll"):
            _enrol(args, load_embedder(args, args.model))
            return 0
        if args.action in actions:
            if not is_server(args.gallery) and not Path(args.gallery).exists():  # fail before loading the model
                raise ValueError(f"there is no gallery at {args.gallery}")
            model = load_embedder(args, args.model)
            with Gallery(args.gallery, model, create=False, key=args.key_file) as gallery:
                actions[args.action](args, gallery, model)
            return 0
        others = {"list": _list, "remove": _remove, "check": _check, "backup": _backup, "index": _index}
        with Gallery(args.gallery, create=False, key=args.key_file) as gallery:
            return others[args.action](args, gallery)


def _enrol(args: argparse.Namespace, model: Embedder) -> None:
    """Enroll whole identities in transactions of about a thousand pictures. The first transaction creates a new gallery."""
    gallery = None
    if is_server(args.gallery) or Path(args.gallery).exists():
        gallery = Gallery(args.gallery, model, key=args.key_file)  # fail before embedding if the model differs
    try:
        for part in _split_by_identity(_open_people(args)):
            found = _apply_quality_gate(args, _embed(args, model, part, _choose_one_face(args)))
            check_templates(found.features)  # fail before a new gallery is created
            names = [normalize_name(args.identity or label) for label in found.labels]
            gallery = gallery or Gallery(args.gallery, model, key=args.key_file)
            for name, row, file in zip(names, found.features, found.files, strict=True):
                warning = judge_new_template(gallery, name, row)
                if warning is not None:
                    print(f"{file}: {warning}", file=sys.stderr)
            gallery.enrol(names, found.features, [encode_source_path(file) for file in found.files])
            for name in dict.fromkeys(names):  # on disk now
                print(f"enrolled {name} with {_count_templates(names.count(name))}", flush=True)
    finally:
        if gallery is not None:
            gallery.close()


def _open_people(args: argparse.Namespace) -> Source:
    """Open a source of labeled pictures. Single files need ``--identity``."""
    files = [path for path in args.images if Path(path).suffix.lower() in SAMPLE_ENDINGS and Path(path).is_file()]
    if args.identity is None and files:
        raise ValueError(f"{files[0]} is a single file: give --identity, or a folder with one sub-folder per identity")
    return open_source(args.images, identities=1, loose="skip" if args.identity is None else "keep")


def _split_by_identity(people: Source) -> Iterator[Source]:
    """Yield parts of whole identities with about ``PICTURES_PER_TRANSACTION`` pictures."""
    rows: dict[str, list[int]] = {}
    for i, record in enumerate(people.records):
        rows.setdefault(normalize_name(record.label), []).append(i)
    part: list[int] = []
    for indices in rows.values():
        part += indices
        if len(part) >= PICTURES_PER_TRANSACTION:
            yield people.part(torch.tensor(part))
            part = []
    if part:
        yield people.part(torch.tensor(part))


def _identify(args: argparse.Namespace, gallery: Gallery, model: Embedder) -> None:
    for features in _embed_parts(args, model, args.choose or "all"):
        found = gallery.identify(
            features.features, args.k, args.threshold, rerank=args.rerank, approximate=args.approximate
        )
        for file, answer, info in zip(features.files, found, features.info, strict=True):
            if args.json:
                candidates = [match._asdict() for match in answer.candidates]
                known = {"identity": answer.name, "score": answer.best.score, "probability": answer.best.probability}
                print(json.dumps({"file": file, **known, "candidates": candidates, **_rename_score(info)}))
            else:
                print("\t".join([file, *_format_answer(answer, info, args.k)]))


def _format_answer(answer: Identification, info: Mapping[str, Any], k: int) -> list[str]:
    """Return name or unknown, score, probability and box; then the candidates if ``k`` > 1."""
    probability = "-" if answer.best.probability is None else f"{answer.best.probability:.4f}"
    box = ",".join(str(round(value)) for value in info["box"]) if "box" in info else "-"
    more = list(map(_format_match, answer.candidates)) if k > 1 else []
    return [answer.name or "unknown", f"{answer.best.score:.4f}", probability, box, *more]


def _rename_score(info: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties of a face, with ``score`` renamed to ``detector_score``."""
    return {"detector_score" if key == "score" else key: value for key, value in info.items()}


def _verify(args: argparse.Namespace, gallery: Gallery, model: Embedder) -> None:
    for features in _embed_parts(args, model, _choose_one_face(args)):
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
                f"--fpir needs strangers, but some of them are enrolled: {', '.join(sorted(enrolled)[:3])}"
            )
        features = _embed(args, model, strangers, _choose_one_face(args))
        found = gallery.calibrate(fpir=args.fpir, strangers=features.features, people=features.labels)
        what = f"a false positive identification rate of {args.fpir:g}"
        over = f"{len(features.files)} pictures of {found.people} people"
    else:
        far = 1e-3 if args.far is None else args.far
        scores, same = score_all_pairs(_embed(args, model, open_source(args.images), _choose_one_face(args)))
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
    with Gallery(args.target, create=False, readonly=True, key=args.key_file) as copy:
        print(f"copied {len(copy)} identities to {args.target}")
    return 0


def _index(args: argparse.Namespace, gallery: Gallery) -> int:
    found = gallery.build_index(args.k, args.probes)
    print(
        f"the index finds {found.recall:.1%} of the {found.k} nearest templates, measured with {found.probes} of them"
    )
    return 0


def _choose_one_face(args: argparse.Namespace) -> str | None:
    """Return the value of ``--choose`` for an action that needs one face per picture."""
    if args.choose == "all":
        raise ValueError(f"--choose all is for identify only; {args.action} needs one face per picture")
    choose: str | None = args.choose
    return choose


def _apply_quality_gate(args: argparse.Namespace, found: Features) -> Features:
    """Print a warning for every face of low quality. With ``--quality refuse``, remove these faces."""
    if args.quality == "off":
        return found
    gate, kept = FaceQualityGate(), []
    for i, info in enumerate(found.info):
        problems = gate.find_problems(info)
        if problems:
            word = "refused" if args.quality == "refuse" else "low quality"
            print(f"{word}: {found.files[i]}: {'; '.join(problems)}", file=sys.stderr)
        if not problems or args.quality == "warn":
            kept.append(i)
    if len(kept) == len(found.files):
        return found
    if not kept:
        raise ValueError("--quality refuse leaves no face to enroll; the reasons are above")
    return found._replace(
        features=found.features[kept],
        files=[found.files[i] for i in kept],
        labels=[found.labels[i] for i in kept],
        info=[found.info[i] for i in kept],
    )


def _embed_parts(args: argparse.Namespace, model: Embedder, choose: str | None) -> Iterator[Features]:
    source = open_source(args.images, identities=1, loose="keep", skip_missing=args.skip_errors)
    print_skipped(list_missing(source))
    count = 0
    for part in torch.arange(len(source)).split(PICTURES_PER_TRANSACTION):
        features = _embed(args, model, source.part(part), choose, report_missing=args.action == "identify")
        count += len(features.files)
        if features.files:
            yield features
    if not count:
        raise ValueError(f"no {model.preprocessing.content} was found in {', '.join(map(str, args.images))}")


def _embed(
    args: argparse.Namespace, model: Embedder, source: Source, choose: str | None, *, report_missing: bool = False
) -> Features:
    """Embed pictures. With ``report_missing``, report pictures without a face on stderr and continue."""
    on_error: OnError = "skip_empty" if report_missing else "raise"
    if args.skip_errors:
        on_error = "skip"
    features = embed(model, source, choose=choose, on_error=on_error, allow_none=True)
    print_skipped(features.skipped)
    return features


def _format_match(match: Match) -> str:
    return f"{match.identity} {match.score:.4f}"


def _count_templates(count: int) -> str:
    return f"{count} template" if count == 1 else f"{count} templates"
