"""``hypersphere evaluate EMBEDDER SOURCE|pairs.txt``: the open-set report of any embedder on any source."""

import argparse
import shlex
import sys
from pathlib import Path
from typing import Any

from ..files import write_text


def configure(parser: argparse.ArgumentParser) -> None:
    """An embedder, what it is measured on, and how."""
    from ..evaluation import scoring

    parser.add_argument("embedder", help="an embedder file, a run or hub folder, a hub id, or characters")
    parser.add_argument(
        "source", help="a folder with a sub-folder for each identity, a table, tar shards, an .npz; or pairs.txt"
    )
    parser.add_argument("-o", "--output", type=Path, metavar="OUT", help="folder for report.json and report.html")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--against", metavar="OTHER", help="another embedder, compared on the same pairs")
    parser.add_argument("--images", type=Path, metavar="FOLDER", help="of pairs.txt: the folder its images are in")
    parser.add_argument("--cohort", metavar="SOURCE", help="strangers against whom scores are normalized (AS-norm)")
    parser.add_argument(
        "--top", type=int, default=300, help="of the cohort: how many of the nearest count (%(default)s)"
    )
    parser.add_argument(
        "--score", choices=sorted(scores(scoring)), default="CosineScore", help="what is compared (%(default)s)"
    )
    parser.add_argument("--far", type=float, nargs="+", help="false accept rates of pairs to give thresholds for")
    parser.add_argument("--fpir", type=float, nargs="+", help="rates of strangers let in, likewise")
    parser.add_argument(
        "--per-template", type=int, default=1, metavar="K", help="combine K images of an identity (%(default)s)"
    )
    parser.add_argument(
        "--pool", choices=("mean", "max", "quality"), default="mean", help="how they are combined (%(default)s)"
    )
    parser.add_argument("--split", help="only the records of this split")
    parser.add_argument(
        "--quality", action="store_true", help="false rejects as images of short features are turned away"
    )
    parser.add_argument(
        "--skip-errors", action="store_true", help="leave out pictures that cannot be read, and name them"
    )
    parser.add_argument("--device", help="where the network runs, such as cuda (cpu)")
    parser.add_argument("--batch", type=int, default=64, help="images at a time (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn at random (%(default)s)")
    parser.add_argument("--trust", action="store_true", help="import your own code that an embedder names")


def run(args: argparse.Namespace) -> int:
    """Measure, print, and leave the report in a folder if one is named."""
    if args.output is not None and args.output.exists() and not args.output.is_dir():
        raise ValueError(f"--output {args.output} is a file; a folder is needed")
    found = measured(args)
    if args.output is not None:
        args.output.mkdir(parents=True, exist_ok=True)
        write_text(args.output / "report.json", found.json() + "\n")
        written = ["report.json", *write_html(found, args.output / "report.html")]
    print(found.json() if args.json else found)
    if args.output is not None and not args.json:
        print(f"written: {', '.join(str(args.output / name) for name in written)}")
    return 0


def measured(args: argparse.Namespace) -> Any:
    """The evaluation that the options ask for."""
    from ..evaluation import scoring
    from ..recognition import evaluate, evaluate_pairs, load

    embedder = load(args.embedder, trust=args.trust, device=args.device)
    other = None if args.against is None else load(args.against, trust=args.trust, device=args.device)
    common: dict[str, Any] = {
        "against": other,
        "cohort": args.cohort,
        "top": args.top,
        "score": scores(scoring)[args.score](),
    }
    common |= {"seed": args.seed, "batch": args.batch}
    if args.far:
        common["fars"] = tuple(args.far)
    if Path(args.source).suffix == ".txt":
        unused = {
            "--fpir": args.fpir,
            "--split": args.split,
            "--quality": args.quality,
            "--skip-errors": args.skip_errors,
        }
        unused["--per-template"] = args.per_template != 1
        given = [name for name, value in unused.items() if value]
        if given:
            raise ValueError(f"{given[0]} does not belong to a list of pairs")
        return evaluate_pairs(embedder, args.source, args.images, **common)
    if args.images is not None:
        raise ValueError(f"--images belongs to a list of pairs (.txt), and {args.source} is none")
    if args.fpir:
        common["fpirs"] = tuple(args.fpir)
    return evaluate(
        embedder,
        args.source,
        split=args.split,
        per_template=args.per_template,
        pool=args.pool,
        quality=args.quality,
        on_error="skip" if args.skip_errors else "raise",
        **common,
    )


def scores(module: Any) -> dict[str, Any]:
    """Every score that needs no argument, by the name of its class."""
    from ..config import parameters

    kinds = {name: kind for name, kind in vars(module).items() if isinstance(kind, type)}
    found = {name: kind for name, kind in kinds.items() if issubclass(kind, module.Score) and kind is not module.Score}
    return {name: kind for name, kind in found.items() if not any(p.required for p in parameters(kind).values())}


def write_html(found: Any, path: Path) -> list[str]:
    """Write the page of an evaluation and return its name; where pages cannot be drawn, say why and return none."""
    try:
        from .. import report
        from ..evaluation.evidence import Evidence, shown_samples, thumbnails

        shown = shown_samples(found.labels)
        names = [found.names[i] for i in shown.tolist()]
        pictures = thumbnails(found.pixels(shown))
        evidence = Evidence(
            found.features[shown], found.labels[shown], found.classes, len(found.labels), pictures, names
        )
        title = f"Evaluation on {Path(str(found.facts.get('source', found.facts.get('pairs')))).name}"
        command = shlex.join(["hypersphere", *sys.argv[1:]])
        facts = {name: fact for name, fact in found.facts.items() if fact is not None}
        report.write_evaluation([found], path, title=title, evidence=evidence, facts=facts, command=command)
    except ImportError as error:
        print(f"{path.name} was not written: {error}", file=sys.stderr)
        return []
    return [path.name]
