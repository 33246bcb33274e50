"""``hypersphere album ACTION ALBUM …``: list, name, correct and export the groups of an album."""

import argparse
import json
from pathlib import Path

from ..recognition import Gallery
from ..recognition.album import Album
from ..recognition.album_export import export_folder, export_gallery, export_table
from .gallery_options import add_key_option, check_key_option
from .terminal import add_action


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the actions and their options."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")

    def action(name: str, text: str, arguments: str = "") -> argparse.ArgumentParser:
        sub = add_action(actions, name, text, f"hypersphere album {name} family.album {arguments}".rstrip())
        sub.add_argument("album", type=Path, metavar="ALBUM", help="album file written by `hypersphere group`")
        return sub

    export = action(
        "export", "write the groups as folders, as a table or into a gallery", "--folder people/ --named-only"
    )
    export.add_argument("--folder", type=Path, help="write this folder, with one sub-folder per group")
    export.add_argument("--copy", action="store_true", help="copy photographs into --folder instead of linking them")
    export.add_argument("--named-only", action="store_true", help="do not write groups without a name to --folder")
    export.add_argument(
        "--table", type=Path, metavar="FILE", help="write this CSV file with the columns path, box, group and name"
    )
    export.add_argument("--gallery", help="enroll the named people in this gallery")
    add_key_option(export)
    listing = action("list", "list the groups, the most doubtful first")
    listing.add_argument("--json", action="store_true", help="print JSON, one object per line")
    show = action("show", "list the samples of a group, the least certain first", "3")
    show.add_argument("group", type=int, metavar="GROUP", help="number of the group")
    show.add_argument("--json", action="store_true", help="print JSON, one object per line")
    name = action("name", "name a group; if another group has the name, merge the two", "3 Ada")
    name.add_argument("group", type=int, metavar="GROUP", help="number of the group")
    name.add_argument("name", metavar="NAME", help="name of the person; '' removes the name")
    action("merge", "merge groups that show the same person", "3 7").add_argument(
        "groups", type=int, nargs="+", metavar="GROUP", help="numbers of the groups"
    )
    action("split", "move samples of one group to a new group", "12 15").add_argument(
        "samples", type=int, nargs="+", metavar="SAMPLE", help="numbers of the samples, as `show` prints them"
    )
    action("reject", "remove samples from their group, because they show another person", "12").add_argument(
        "samples", type=int, nargs="+", metavar="SAMPLE", help="numbers of the samples, as `show` prints them"
    )
    action("undo", "undo the last change")
    action("history", "list all changes")
    action("check", "check the album file for damage")


def run(args: argparse.Namespace) -> int:
    """Carry out the action and print its result."""
    with Album(args.album, create=False) as album:
        return ACTIONS[args.action](args, album)


def _export(args: argparse.Namespace, album: Album) -> int:
    if not (args.folder or args.table or args.gallery):
        raise ValueError("export needs at least one of --folder, --table and --gallery")
    check_key_option(args)
    if args.table:
        print(f"{args.table}: {export_table(album, args.table)} rows")
    if args.folder:
        how = "copy" if args.copy else "link"
        written = export_folder(album, args.folder, how, named_only=args.named_only)  # type: ignore[arg-type]
        print(f"{args.folder}: {written} new {'files' if args.copy else 'links'}")
    if args.gallery:
        with Gallery(args.gallery, album.fingerprint, key=args.key_file) as gallery:
            people = export_gallery(album, gallery)
        print(f"{args.gallery}: {sum(people.values())} templates of {len(people)} people")
    return 0


def _list(args: argparse.Namespace, album: Album) -> int:
    for group in album.groups():
        if args.json:
            print(json.dumps(group._asdict(), ensure_ascii=False))
        else:
            like = "" if group.similar is None else f"  like {group.similar} ({group.similar_probability:.0%})"
            print(f"{group.id:>6}  {group.size:>5} samples  doubt {group.doubt:4.0%}  {group.name or '–'}{like}")
    if not args.json:
        print(f"{len(album.unassigned())} samples are in no group")
    return 0


def _show(args: argparse.Namespace, album: Album) -> int:
    for sample in album.members(args.group):
        if args.json:
            print(json.dumps(sample._asdict(), ensure_ascii=False))
        else:
            print(f"{sample.id:>6}  {sample.probability:4.0%}  {sample.path}")
    return 0


def _name(args: argparse.Namespace, album: Album) -> int:
    print(album.name(args.group, args.name or None))
    return 0


def _merge(args: argparse.Namespace, album: Album) -> int:
    print(album.merge(args.groups))
    return 0


def _split(args: argparse.Namespace, album: Album) -> int:
    print(album.split(args.samples))
    return 0


def _reject(args: argparse.Namespace, album: Album) -> int:
    for sample in args.samples:
        album.reject(sample)
    return 0


def _undo(args: argparse.Namespace, album: Album) -> int:
    print(album.undo() or "there is nothing to undo")
    return 0


def _history(args: argparse.Namespace, album: Album) -> int:
    for time, action, undone in album.history():
        print(f"{time}  {action}{'  (undone)' if undone else ''}")
    return 0


def _check(args: argparse.Namespace, album: Album) -> int:
    problems = album.check()
    print("\n".join(problems) or "all is well")
    return 1 if problems else 0


ACTIONS = {
    "export": _export,
    "list": _list,
    "show": _show,
    "name": _name,
    "merge": _merge,
    "split": _split,
    "reject": _reject,
    "undo": _undo,
    "history": _history,
    "check": _check,
}
