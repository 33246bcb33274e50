"""``hypersphere energy CHECKPOINT``: measure the hyperspherical energy of every layer, or compare two checkpoints."""

import argparse
import contextlib
import json
import math
import pathlib
import shlex
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from .._extras import require
from ..energy.checkpoint_files import Checkpoint
from ..energy.checkpoint_report import LayerChange, LayerReport, energy_changes, energy_report
from ..files import replace_nonfinite, write_atomically


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the checkpoint, the kernel and the outputs."""
    parser.add_argument(
        "checkpoint", metavar="CHECKPOINT", help="state dict: a .safetensors or .pt file, or a folder of shards"
    )
    parser.add_argument(
        "--against", metavar="CHECKPOINT", help="earlier checkpoint of the same network to compare with"
    )
    parser.add_argument(
        "--s",
        type=float,
        default=2,
        metavar="POWER",
        help="power s of the kernel 1 / distance^s (default: %(default)s)",
    )
    parser.add_argument(
        "--half-space",
        action="store_true",
        help="include the negative of every neuron (half-space energy)",
    )
    parser.add_argument(
        "--pairs",
        type=int,
        default=3,
        metavar="N",
        help="list the N nearest pairs of neurons of each layer (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--plot",
        metavar="FILE",
        help="also write a figure of the energies of all layers, beside those of random layers (needs matplotlib)",
    )
    parser.add_argument("--page", metavar="FILE", help="also write an HTML page")


def run(args: argparse.Namespace) -> int:
    """Measure all layers, print the table or JSON, and write the requested figure and page."""
    checkpoint = Checkpoint(args.checkpoint)
    left_out: dict[str, str] = {}
    options = {"s": args.s, "half_space": args.half_space}
    with show_progress() as update:
        layers = energy_report(checkpoint, pairs=args.pairs, left_out=left_out, progress=update, **options)
    if not layers:
        raise ValueError(f"{args.checkpoint} contains no layer with two or more neurons of two or more dimensions")
    earlier = None if args.against is None else Checkpoint(args.against)
    with show_progress() as update:
        changes = [] if earlier is None else energy_changes(earlier, checkpoint, progress=update, **options)
    if earlier is not None and not changes:
        raise ValueError(f"{args.against} and {args.checkpoint} share no layer of the same name and shape")
    if args.json:
        values: Any = [layer.as_dict() for layer in layers]
        if earlier is not None:
            values = {"layers": values, "changes": [change.as_dict() for change in changes]}
        print(json.dumps(replace_nonfinite(values), indent=1))
    else:
        print(_format_table(_LAYER_COLUMNS, [_format_layer(layer) for layer in layers], right=(3, 5, 6)))
        if changes:
            rows = [_format_change(change) for change in changes]
            print(f"\nsince {args.against}:\n" + _format_table(_CHANGE_COLUMNS, rows, right=tuple(range(1, 8))))
    for name, reason in left_out.items():
        print(f"left out {name}: {reason}", file=sys.stderr)
    if args.plot:
        from ..plots import plot_layer_energies

        earlier_layers = [] if earlier is None else energy_report(earlier, pairs=1, **options)
        figure, _ = plot_layer_energies(layers, earlier_layers)
        write_atomically(args.plot, lambda temporary: figure.savefig(temporary, dpi=150))
    if args.page:
        from ..report import write_energy

        command = f"hypersphere energy {shlex.quote(args.checkpoint)} --s {args.s:g}{' --half-space' * args.half_space}"
        bounded, title = args.s == 2 and not args.half_space, pathlib.Path(args.checkpoint).name
        written = write_energy(layers, args.page, title=title, bounded=bounded, command=command)
        print(f"page: {written}", file=sys.stderr)
    return 0


@contextlib.contextmanager
def show_progress() -> Iterator[Any]:
    """Show a progress bar with the current layer on stderr if it is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    bars = require("rich.progress").Progress(console=require("rich.console").Console(stderr=True), transient=True)
    with bars:
        task = bars.add_task("reading", total=1.0)
        yield lambda name, done: bars.update(task, description=name, completed=done)


_LAYER_COLUMNS = (
    "layer",
    "what",
    "neurons × dim",
    "energy",
    "random",
    "separation",
    "rank",
    "near",
    "nearest pairs",
    "dead",
    "duplicates",
)
_CHANGE_COLUMNS = ("layer", "turned, mean", "largest", "length ×", "rotation explains", "energy +", "near +", "rank +")


def _format_layer(layer: LayerReport) -> list[str]:
    spread = f" ± {layer.random_std:.1g}" if math.isfinite(layer.random_std) else ""
    return [
        layer.name,
        layer.kind or "–",
        f"{layer.neurons} × {layer.dim}",
        f"{layer.energy:.5g}",
        f"{layer.random_mean:.5g}{spread}",
        f"{math.degrees(layer.separation):.2f}°",
        f"{100 * layer.effective_rank:.0f} %",
        f"{100 * layer.near_duplicates:.0f} %",
        " ".join(f"{i}-{j}" for i, j, _ in layer.nearest) or "–",
        _format_list([str(i) for i in layer.dead]),
        _format_list([f"{i}-{j}" for i, j in layer.duplicates]),
    ]


def _format_change(change: LayerChange) -> list[str]:
    return [
        change.name,
        f"{math.degrees(change.angle):.2f}°",
        f"{math.degrees(change.largest_angle):.2f}°",
        f"{change.length:.4f} ± {change.length_spread:.4f}",
        "–" if change.rotated is None else f"{100 * change.rotated:.1f} %",
        f"{change.energy:.3g}",
        *(f"{round(100 * share, 1) + 0.0:.1f} %" for share in (change.near_duplicates, change.effective_rank)),
    ]


def _format_table(header: Sequence[str], rows: list[list[str]], right: tuple[int, ...]) -> str:
    widths = [max(len(row[k]) for row in [list(header), *rows]) for k in range(len(header))]
    return "\n".join(
        "  ".join(
            cell.rjust(w) if k in right else cell.ljust(w) for k, (cell, w) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in [header, *rows]
    )


def _format_list(items: list[str]) -> str:
    return "–" if not items else " ".join(items[:4]) + (f" … ({len(items)})" if len(items) > 4 else "")
