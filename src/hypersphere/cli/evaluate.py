"""``hypersphere evaluate EMBEDDER SOURCE|pairs.txt``: write the open-set report of an embedder on a source."""

import argparse
import shlex
import sys
from pathlib import Path
from typing import Any

from ..files import write_text
from .embedder_options import EMBEDDER_HELP, add_embedder_options, load_embedder
from .source_options import SOURCE_HELP, add_source_options, read_source_options


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the embedder, the source and the options."""
    from ..evaluation import scoring

    parser.add_argument("embedder", metavar="EMBEDDER", help=EMBEDDER_HELP)
    parser.add_argument("source", metavar="SOURCE", help=f"{SOURCE_HELP}; or a list of pairs (.txt)")
    output = parser.add_argument_group("output")
    output.add_argument("-o", "--output", type=Path, metavar="FOLDER", help="folder for report.json and report.html")
    output.add_argument("--json", action="store_true", help="print the report as JSON")
    output.add_argument("--against", metavar="EMBEDDER", help="another embedder to compare with on the same pictures")
    output.add_argument(
        "--no-baselines", action="store_true", help="do not compare with simple methods and pretrained models"
    )
    scoring_group = parser.add_argument_group("scores and thresholds")
    scoring_group.add_argument(
        "--far",
        type=float,
        nargs="+",
        metavar="RATE",
        help="false accept rates to report thresholds for, such as 0.001",
    )
    scoring_group.add_argument(
        "--fpir",
        type=float,
        nargs="+",
        metavar="RATE",
        help="false positive identification rates to report thresholds for, such as 0.01",
    )
    scoring_group.add_argument(
        "--score",
        choices=sorted(list_scores(scoring)),
        default="CosineScore",
        help="score function (default: %(default)s)",
    )
    scoring_group.add_argument(
        "--cohort", metavar="SOURCE", help="pictures of other people; scores are normalized with them (AS-norm)"
    )
    scoring_group.add_argument(
        "--top",
        type=int,
        default=300,
        metavar="N",
        help="with --cohort: use the N most similar pictures of the cohort (default: %(default)s)",
    )
    scoring_group.add_argument(
        "--per-template",
        type=int,
        default=1,
        metavar="K",
        help="combine K pictures of an identity into one template (default: %(default)s)",
    )
    scoring_group.add_argument(
        "--pool",
        choices=("mean", "max", "quality"),
        default="mean",
        help="with --per-template: how to combine the pictures (default: %(default)s)",
    )
    scoring_group.add_argument(
        "--quality",
        action="store_true",
        help="also report the false rejects that remain when the pictures of lowest quality are discarded; with --output, "
        "also write quality.svg",
    )
    scoring_group.add_argument(
        "--rerank", action="store_true", help="also measure retrieval with k-reciprocal re-ranking"
    )
    scoring_group.add_argument(
        "--prefix",
        type=int,
        nargs="+",
        default=[],
        metavar="DIM",
        help="also measure the first DIM dimensions of the features",
    )
    scoring_group.add_argument(
        "--by",
        metavar="COLUMN",
        help="for tables: also report the error rates for each value of this column, such as age",
    )
    execution = parser.add_argument_group("execution")
    execution.add_argument("--device", metavar="NAME", help="device for the network, such as cuda (default: cpu)")
    execution.add_argument("--batch", type=int, default=64, metavar="N", help="batch size (default: %(default)s)")
    execution.add_argument("--seed", type=int, default=0, metavar="N", help="random seed (default: %(default)s)")
    add_source_options(parser)
    add_embedder_options(parser)


def run(args: argparse.Namespace) -> int:
    """Measure, print the report, and write it to the folder of ``--output``."""
    if args.output is not None and args.output.exists() and not args.output.is_dir():
        raise ValueError(f"--output must be a folder, got the file {args.output}")
    found = run_evaluation(args)
    if args.output is not None:
        args.output.mkdir(parents=True, exist_ok=True)
        write_text(args.output / "report.json", found.json() + "\n")
        written = ["report.json", *write_html(found, args.output / "report.html")]
        if getattr(found, "rejections", None):
            figure, _ = found.plot_rejection()
            figure.savefig(args.output / "quality.svg", bbox_inches="tight")
            written.append("quality.svg")
    print(found.json() if args.json else found)
    if args.output is not None and not args.json:
        print(f"written: {', '.join(str(args.output / name) for name in written)}")
    return 0


def run_evaluation(args: argparse.Namespace) -> Any:
    """Return the evaluation that the options request."""
    from ..data import open_source
    from ..evaluation import scoring
    from ..recognition import evaluate, evaluate_pairs

    embedder = load_embedder(args, args.embedder, args.device)
    other = None if args.against is None else load_embedder(args, args.against, args.device)
    common: dict[str, Any] = {
        "against": other,
        "cohort": args.cohort,
        "top": args.top,
        "score": list_scores(scoring)[args.score](),
        "seed": args.seed,
        "batch": args.batch,
    }
    if args.far:
        common["fars"] = tuple(args.far)
    if Path(args.source).suffix == ".txt":
        unused = {
            "--fpir": args.fpir,
            "--quality": args.quality,
            "--by": args.by,
            "--rerank": args.rerank,
            "--prefix": args.prefix,
            "--skip-errors": args.skip_errors,
            **{f"--{name}": getattr(args, name) for name in ("split", "depth", "labels", "images")},
        }
        unused["--per-template"] = args.per_template != 1
        unusable = [name for name, value in unused.items() if value]
        if unusable:
            raise ValueError(f"{unusable[0]} cannot be used with a list of pairs; it needs labeled pictures")
        return evaluate_pairs(embedder, args.source, args.root, **common)
    if args.fpir:
        common["fpirs"] = tuple(args.fpir)
    if args.cohort is not None:
        skip: dict[str, Any] = {"on_error": "skip"} if args.skip_errors else {}
        common["cohort"] = open_source(args.cohort, identities=1, **skip)
    return evaluate(
        embedder,
        open_source(args.source, **read_source_options(args), category=args.by),
        per_template=args.per_template,
        pool=args.pool,
        quality=args.quality,
        rerank=args.rerank,
        prefixes=args.prefix,
        baselines=not args.no_baselines,
        **common,
    )


def list_scores(module: Any) -> dict[str, Any]:
    """Return all score classes without required arguments, by name."""
    from ..config import parameters

    kinds = {name: kind for name, kind in vars(module).items() if isinstance(kind, type)}
    scores = {name: kind for name, kind in kinds.items() if issubclass(kind, module.Score) and kind is not module.Score}
    return {name: kind for name, kind in scores.items() if not any(p.required for p in parameters(kind).values())}


def write_html(found: Any, path: Path) -> list[str]:
    """Write the page of an evaluation and return its name. If a package is missing, print its name and return none."""
    try:
        from .. import report
        from ..evaluation.evidence import Evidence, choose_samples, thumbnails

        indices = choose_samples(found.labels)
        names = [found.names[i] for i in indices.tolist()]
        pictures = thumbnails(found.pixels(indices))
        evidence = Evidence(
            found.features[indices], found.labels[indices], found.classes, len(found.labels), pictures, names
        )
        title = f"Evaluation on {Path(str(found.facts.get('source', found.facts.get('pairs')))).name}"
        command = shlex.join(["hypersphere", *sys.argv[1:]])
        facts = {name: fact for name, fact in found.facts.items() if fact is not None}
        report.write_evaluation([found], path, title=title, evidence=evidence, facts=facts, command=command)
    except ImportError as error:
        print(f"{path.name} was not written: {error}", file=sys.stderr)
        return []
    return [path.name]
