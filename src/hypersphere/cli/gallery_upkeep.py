"""Actions of ``hypersphere gallery`` that maintain a gallery: correct, audit, migrate, encrypt, erase and describe."""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..data.sources import open_source
from ..recognition import Gallery, audit, embed, migrate, rekey
from ..recognition.gallery import encode_source_path
from ..recognition.stores.protection import write_key
from .embedder_options import EMBEDDER_HELP, add_embedder_options, load_embedder
from .gallery_options import GALLERY_HELP, add_key_option
from .source_options import IMAGES_HELP
from .terminal import add_action


def configure(actions: Any) -> None:
    """Add the actions of this file."""

    def action(
        name: str, text: str, example: str, *, gallery: bool = True, as_json: bool = True
    ) -> argparse.ArgumentParser:
        sub = add_action(actions, name, text, f"hypersphere gallery {name} {example}")
        if gallery:
            sub.add_argument("gallery", metavar="GALLERY", help=GALLERY_HELP)
            add_key_option(sub)
        if as_json:
            sub.add_argument("--json", action="store_true", help="print JSON")
        return sub

    reject = action(
        "reject",
        "store pictures mistaken for a person, which lowers the score of similar pictures",
        'known.db sface "Ada Lovelace" mistaken.jpg',
    )
    reject.add_argument("model", metavar="EMBEDDER", help=EMBEDDER_HELP)
    reject.add_argument("identity", metavar="NAME", help="name of the person that the pictures do not show")
    reject.add_argument("images", nargs="+", metavar="PICTURES", help=IMAGES_HELP)
    add_embedder_options(reject)
    forget = action(
        "forget",
        "erase a person from all files of the gallery, and list the backups that still contain the person",
        'known.db "Ada Lovelace"',
    )
    forget.add_argument("identity", metavar="NAME", help="name of the person")
    forget.add_argument("--backups", action="store_true", help="also erase the person from the backups")
    audit_action = action(
        "audit",
        "list suspicious templates: unlike the person's other templates, like another person, or from poor pictures",
        "known.db --embedder sface --page audit.html",
    )
    audit_action.add_argument(
        "--embedder", help=f"also measure the quality of the faces with this embedder: {EMBEDDER_HELP}"
    )
    audit_action.add_argument(
        "--threshold",
        type=float,
        metavar="COSINE",
        help="lowest cosine expected between templates of one person (default: the calibrated threshold)",
    )
    audit_action.add_argument(
        "--page", metavar="FILE.html", type=Path, help="also write an HTML page with the pictures"
    )
    audit_action.add_argument(
        "--no-pictures",
        action="store_true",
        help="do not read the pictures, so that missing and poor ones are not reported",
    )
    add_embedder_options(audit_action)
    migrate_action = action(
        "migrate",
        "write a new gallery with the features of another embedder; the old gallery remains",
        "known.db run/embedder.safetensors -o new.db",
    )
    migrate_action.add_argument("model", metavar="NEW_EMBEDDER", help=EMBEDDER_HELP)
    migrate_action.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="the new gallery (default: GALLERY-migrated.db)"
    )
    migrate_action.add_argument(
        "--pictures", nargs="+", metavar="SOURCE", help="folders of the enrolled pictures, if they were moved"
    )
    migrate_action.add_argument(
        "--common",
        nargs="+",
        metavar="SOURCE",
        help="pictures of any people, one folder per person; needed if enrolled pictures are missing, to learn a map from the "
        "old to the new features",
    )
    migrate_action.add_argument(
        "--old-model", metavar="EMBEDDER", help="with --common: the embedder of the old gallery"
    )
    add_embedder_options(migrate_action)
    rekey_action = action(
        "rekey",
        "write a copy of a gallery that is encrypted with a new key, or not encrypted",
        "known.db encrypted.db --new-key-file new.key",
        as_json=False,
    )
    rekey_action.add_argument("target", type=Path, metavar="FILE", help="gallery to create")
    rekey_action.add_argument(
        "--new-key-file",
        metavar="FILE",
        help="file with the new key, see `gallery key` (default: the copy is not encrypted)",
    )
    key_action = action("key", "create a key file, to encrypt galleries with", "new.key", gallery=False, as_json=False)
    key_action.add_argument("target", type=Path, metavar="FILE", help="file to create; only you can read it")
    action(
        "info",
        "print the numbers of people and templates, the model, the thresholds, the encryption, the size and the backups",
        "known.db",
    )


def _open(args: argparse.Namespace, model: Any = None) -> Gallery:
    return Gallery(args.gallery, model, create=False, key=args.key_file)


def _reject(args: argparse.Namespace) -> int:
    model = load_embedder(args, args.model)
    with _open(args, model) as gallery:
        found = embed(model, open_source(args.images, identities=1, loose="keep"))
        result = gallery.reject(args.identity, found.features, [encode_source_path(file) for file in found.files])
    if args.json:
        values = {**result._asdict(), "files": found.files}
        values.update({key: [one._asdict() for one in values[key]] for key in ("before", "after")})
        print(json.dumps(values))
        return 0
    for file, before, after in zip(found.files, result.before, result.after, strict=True):
        print(f"{file}\tnot {result.identity}\t{before.score:.4f} -> {after.score:.4f}")
    if result.threshold is None:
        print("no threshold is calibrated, so no rates can be estimated: run hypersphere gallery calibrate")
        return 0
    accepted = sum(one.accepted for one in result.after)
    print(
        f"threshold {result.threshold:.4f}: {accepted} of {len(result.after)} still accepted; of {result.templates} templates "
        f"of {result.identity}, the others recognized {result.own_before} before and {result.own_after} now; "
        f"expected share of strangers accepted: at most {result.expected_fpir:.2%}"
    )
    return 0


def _forget(args: argparse.Namespace) -> int:
    with _open(args) as gallery:
        result = gallery.forget(args.identity, backups=args.backups)
    if args.json:
        print(json.dumps(result._asdict()))
        return 0
    print(f"forgot {result.identity}: {result.templates} templates erased")
    for place in (*result.remaining, *result.backups):
        print(f"not erased: {place}")
    return 0


def _audit(args: argparse.Namespace) -> int:
    model = None if args.embedder is None else load_embedder(args, args.embedder)
    with _open(args, model) as gallery:
        findings = audit(gallery, threshold=args.threshold, quality=not args.no_pictures)
        count = sum(gallery.list().values())
    if args.json:
        print(json.dumps({"templates": count, "findings": [one._asdict() for one in findings]}))
    else:
        for one in findings:
            print(f"{one.kind}\t{one.identity}\t{one.source or f'template {one.number}'}\t{one.text}")
        print(f"{len(findings)} findings in {count} templates")
    if args.page is not None:
        from ..report.gallery_audit import write_audit

        print(f"wrote {write_audit(findings, count, args.gallery, args.page)}", file=sys.stderr)
    return 0


def _migrate(args: argparse.Namespace) -> int:
    target = args.output or Path(args.gallery).with_name(f"{Path(args.gallery).stem}-migrated.db")
    model = load_embedder(args, args.model)
    old_model = None if args.old_model is None else load_embedder(args, args.old_model)
    with _open(args) as old:
        found = migrate(
            old,
            model,
            target,
            old_model=old_model,
            pictures=args.pictures,
            common=args.common,
            key=args.key_file,
        )
    if args.json:
        values = {
            **found._asdict(),
            "target": str(target),
            "loss": None if found.loss is None else found.loss._asdict(),
            "calibrations": [one._asdict() for one in found.calibrations],
        }
        print(json.dumps(values))
        return 0
    print(
        f"wrote {target} with {found.identities} people: {found.embedded} templates embedded again, {found.mapped} mapped "
        f"(learned from {found.common} pictures); {args.gallery} remains"
    )
    if found.loss is not None:
        loss = found.loss
        print(
            f"mapped templates, measured on {loss.people} people that the map has not seen: rank-1 {loss.rank_1_mapped:.1%} "
            f"instead of {loss.rank_1:.1%}, TPIR at FPIR {loss.fpir:.2g} {loss.tpir_mapped:.1%} instead of {loss.tpir:.1%}"
        )
    for one in found.calibrations:
        print(f"threshold {one.threshold:.4f} for {one.by}={one.rate:g}")
    for note in found.notes:
        print(f"note: {note}", file=sys.stderr)
    return 0


def _rekey(args: argparse.Namespace) -> int:
    with _open(args) as old:
        count = rekey(old, args.target, args.new_key_file)
    kind = "an encrypted copy" if args.new_key_file else "a copy"
    print(f"wrote {args.target}, {kind} with {count} people; {args.gallery} remains")
    return 0


def _key(args: argparse.Namespace) -> int:
    write_key(args.target)
    print(f"wrote {args.target}; keep a copy in another place: without the key, nobody can read the gallery")
    return 0


def _info(args: argparse.Namespace) -> int:
    with _open(args) as gallery:
        found = gallery.info()
    if args.json:
        print(json.dumps({**found._asdict(), "calibrations": [one._asdict() for one in found.calibrations]}))
        return 0
    rows = {
        "gallery": found.path,
        "people": str(found.identities),
        "templates": str(found.templates),
        "dimension": "-" if found.dim is None else str(found.dim),
        "model": (found.fingerprint or "unknown")[:12],
        "counter-examples": str(found.counterexamples),
        "encrypted": "yes" if found.encrypted else "no",
        "size": "on a server" if found.megabytes is None else f"{found.megabytes:.2f} MB",
    }
    for one in found.calibrations:
        rows[f"threshold by {one.by}"] = f"{one.threshold:.4f} for {one.rate:g}, set with {one.size} people"
    if not found.calibrations:
        rows["threshold"] = "none; run hypersphere gallery calibrate"
    print("\n".join(f"{name:<17} {value}" for name, value in rows.items()))
    for copy in found.backups:
        print(f"copy              {copy}{'' if Path(copy).exists() else ' (missing)'}")
    return 0


ACTIONS: dict[str, Callable[[argparse.Namespace], int]] = {
    "reject": _reject,
    "forget": _forget,
    "audit": _audit,
    "migrate": _migrate,
    "rekey": _rekey,
    "key": _key,
    "info": _info,
}
