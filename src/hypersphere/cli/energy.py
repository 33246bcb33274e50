"""``hypersphere energy CHECKPOINT``: the hyperspherical energy of every layer of a saved network."""

import argparse
import json
import math
import pathlib
import pickle
import shlex
import sys
from collections.abc import Mapping
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from .._extras import require
from ..energy.checkpoints import LayerReport, energy_report


def configure(parser: argparse.ArgumentParser) -> None:
    """The checkpoint and what to print of it."""
    parser.add_argument("checkpoint", help="a state_dict in a .safetensors or .pt file")
    parser.add_argument("--s", type=float, default=2, help="power of the kernel (default: 2)")
    parser.add_argument("--half-space", action="store_true", help="energy of the neurons and their opposites")
    parser.add_argument("--samples", type=int, default=8, help="random layers drawn for comparison (default: 8)")
    parser.add_argument("--pairs", type=int, default=3, help="nearest pairs listed per layer (default: 3)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--plot", metavar="FILE", help="also draw energy beside random layers (needs matplotlib)")
    parser.add_argument("--page", metavar="FILE", help="also write a page about it, to open in a browser")


def run(args: argparse.Namespace) -> int:
    """Read, measure, print."""
    layers = energy_report(
        load_state(args.checkpoint), s=args.s, half_space=args.half_space, samples=args.samples, pairs=args.pairs
    )
    if not layers:
        raise ValueError(f"{args.checkpoint} holds no layer with two or more neurons of two or more dimensions")
    print(json.dumps([_finite(layer.as_dict()) for layer in layers], indent=1) if args.json else _table(layers))
    if args.plot:
        plot(layers, args.plot)
    if args.page:
        from ..report import write_energy

        command = f"hypersphere energy {shlex.quote(args.checkpoint)} --s {args.s:g}{' --half-space' * args.half_space}"
        bounded, title = args.s == 2 and not args.half_space, pathlib.Path(args.checkpoint).name
        written = write_energy(layers, args.page, title=title, bounded=bounded, command=command)
        print(f"page: {written}", file=sys.stderr)
    return 0


def load_state(path: str) -> Mapping[str, Any]:
    """The tensors of a checkpoint by name; nested dictionaries get dotted names. Never runs code from the file."""
    file = pathlib.Path(path)
    if not file.is_file():
        raise ValueError(f"no such file: {path}")
    try:
        content = (
            load_file(file)
            if file.suffix == ".safetensors"
            else torch.load(file, map_location="cpu", weights_only=True)
        )
    except SafetensorError as error:
        raise ValueError(f"{path} is not a readable checkpoint: {error}") from error
    except (pickle.UnpicklingError, RuntimeError, EOFError, KeyError) as error:
        raise ValueError(
            f"{path} is damaged, or holds more than tensors and plain values, which is not read"
        ) from error
    if not isinstance(content, Mapping):
        raise ValueError(f"{path} holds a {type(content).__name__}, not a state_dict")
    return dict(_flat("", content))


def plot(layers: list[LayerReport], path: str) -> None:
    """Each layer's energy as a share of its random counterpart's, with their spread."""
    pyplot = require("matplotlib.pyplot")
    figure, axes = pyplot.subplots(figsize=(7, 1 + 0.32 * len(layers)), layout="constrained")
    position = range(len(layers))
    scale = [abs(layer.random_mean) or 1.0 for layer in layers]
    spread = [3 * layer.random_std / unit for layer, unit in zip(layers, scale, strict=True)]
    middle = [layer.random_mean / unit for layer, unit in zip(layers, scale, strict=True)]
    axes.errorbar(
        middle, position, xerr=spread, fmt="|", color="0.6", capsize=3, label="random, ±3 standard deviations"
    )
    axes.plot(
        [layer.energy / unit for layer, unit in zip(layers, scale, strict=True)],
        position,
        "o",
        color="C0",
        label="this network",
    )
    if max(layer.energy / unit for layer, unit in zip(layers, scale, strict=True)) > 10:
        axes.set_xscale("log")  # duplicates raise the energy by orders of magnitude
    axes.set_yticks(position, [layer.name for layer in layers])
    axes.invert_yaxis()
    axes.set_xlabel("hyperspherical energy over that of random neurons")
    axes.margins(y=0.5 / max(len(layers), 2))
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2, frameon=False)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def _table(layers: list[LayerReport]) -> str:
    header = ["layer", "neurons × dim", "energy", "random", "separation", "nearest pairs", "dead", "duplicates"]
    rows = [
        [
            layer.name,
            f"{layer.neurons} × {layer.dim}",
            f"{layer.energy:.5g}",
            f"{layer.random_mean:.5g} ± {layer.random_std:.1g}",
            f"{math.degrees(layer.separation):.2f}°",
            " ".join(f"{i}-{j}" for i, j, _ in layer.nearest) or "–",
            _listed([str(i) for i in layer.dead]),
            _listed([f"{i}-{j}" for i, j in layer.duplicates]),
        ]
        for layer in layers
    ]
    widths = [max(len(row[k]) for row in [header, *rows]) for k in range(len(header))]
    right = {2, 4}
    return "\n".join(
        "  ".join(
            cell.rjust(w) if k in right else cell.ljust(w) for k, (cell, w) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in [header, *rows]
    )


def _listed(items: list[str]) -> str:
    return "–" if not items else " ".join(items[:4]) + (f" … ({len(items)})" if len(items) > 4 else "")


def _finite(value: Any) -> Any:
    """NaN is not JSON: null says that there is nothing to measure."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(v) for key, v in value.items()}
    return [_finite(v) for v in value] if isinstance(value, list | tuple) else value


def _flat(prefix: str, content: Mapping[Any, Any]) -> list[tuple[str, Any]]:
    items: list[tuple[str, Any]] = []
    for key, value in content.items():
        name = f"{prefix}{key}"
        items += _flat(f"{name}.", value) if isinstance(value, Mapping) else [(name, value)]
    return items
