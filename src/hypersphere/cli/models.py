"""``hypersphere models``: the catalog of pretrained networks."""

import argparse
import json

from ..models.catalog import CATALOG, ModelEntry, fetch_model, find_entry
from .embedder_options import add_license_option


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the name of one model, and the options to fetch it."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="show the details of this model")
    parser.add_argument(
        "--fetch",
        action="store_true",
        help="download the weights of NAME, or of all models with a permissive license",
    )
    add_license_option(parser)
    parser.add_argument("--json", action="store_true", help="print the catalog as JSON")


def run(args: argparse.Namespace) -> int:
    """Print the catalog or one entry, or fetch weights."""
    if args.fetch:
        permissive = [entry.name for entry in CATALOG.values() if entry.tier == "permissive"]
        for name in permissive if args.name is None else [args.name]:
            print(fetch_model(name, accept_licence=args.accept_licence), flush=True)
        return 0
    entries = list(CATALOG.values()) if args.name is None else [find_entry(args.name)]
    if args.json:
        print(json.dumps([_describe(entry) for entry in entries], indent=1))
    elif args.name is not None:
        print("\n".join(f"{key:14}{value}" for key, value in _describe(entries[0]).items()))
    else:
        _print_table(entries)
    return 0


def _describe(entry: ModelEntry) -> dict[str, str]:
    time = "not measured" if entry.cpu_ms is None else f"{entry.cpu_ms:g} ms of one core per sample"
    values = {
        "name": entry.name,
        "task": entry.task,
        "input": entry.input,
        "features": str(entry.feature_dim or "none (a detector)"),
        "size": f"{entry.size / 1e6:.1f} MB",
        "license": f"{entry.licence} ({entry.tier})",
        "quality": entry.quality or "not measured",
        "time": time,
        "weights": "; ".join(map(str, entry.sources)),
        "sha256": entry.sha256,
        "on disk": str(entry.path) if entry.is_here else "no; downloaded on first use",
        "note": entry.note,
    }
    return {key: value for key, value in values.items() if value}


def _print_table(entries: list[ModelEntry]) -> None:
    rows = [("NAME", "RECOGNIZES", "INPUT", "DIM", "MB", "LICENSE", "QUALITY", "CPU MS", "FROM", "HERE")]
    for entry in entries:
        here, dim = "yes" if entry.is_here else "no", str(entry.feature_dim or "-")
        time = "-" if entry.cpu_ms is None else f"{entry.cpu_ms:g}"
        license_ = f"{entry.licence}, {entry.tier}"
        sizes = (dim, f"{entry.size / 1e6:.1f}", license_, entry.quality or "-", time, entry.sources[0].title, here)
        rows.append((entry.name, entry.task, entry.input.partition(";")[0], *sizes))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    print(
        "\nhypersphere models NAME shows the details of one model. Weights are downloaded on first use. CPU MS is the time "
        "in milliseconds that one core takes per sample."
    )
