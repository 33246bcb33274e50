"""The files of a finished run: weights, embedder, metrics, pictures and model card."""

import math
import pathlib
from typing import Any

from torch import Tensor

from .. import __version__, plots
from ..evaluation.evidence import FILE as EVIDENCE
from ..files import is_finite, save_tensors, write_json, write_text
from ..orthogonal._merge import compute_plain_weights
from .errors import NonFiniteLossError
from .run_folder import RunFolder, read_log
from .settings import Settings
from .tasks.task import Task, draw


def write_results(
    task: Task, settings: Settings, folder: RunFolder, step: int, metrics: dict[str, float]
) -> str | None:
    """Write the files of a finished run atomically, and record them in the run folder.

    Returns:
        The reason why no embedder file was written, or None.
    """
    tensors = merge_weights(task)
    if not is_finite(tensors):
        raise NonFiniteLossError(
            f"the weights are not finite after step {step}; the last good checkpoint is {folder.last}"
        )
    folder.record("model.safetensors", "embedder.safetensors", "metrics.json", "README.md")
    save_tensors(tensors, folder.path / "model.safetensors")
    no_embedder = task.write_embedder(folder.path, tensors)
    write_json(folder.path / "metrics.json", {"steps": step, **metrics})
    pictures = folder.path / "pictures"
    if settings.pictures:
        pictures.mkdir(exist_ok=True)
        task.pictures(pictures)
        _plot_dynamics(pictures, settings, folder.path)
        folder.record(*(f"pictures/{path.name}" for path in pictures.iterdir()))
        if (evidence := task.evidence()) is not None:
            folder.record(EVIDENCE)
            evidence.save(folder.path / EVIDENCE)
    names = sorted(path.name for path in pictures.glob("*.png"))
    write_text(folder.path / "README.md", format_card(task, settings, step, metrics, names, no_embedder))
    return no_embedder


def merge_weights(task: Task) -> dict[str, Tensor]:
    """Return the weights of the plain network, with rotations and low-rank factors multiplied into its layers."""
    weights = compute_plain_weights(task.model)
    return {name: tensor.detach().cpu().contiguous().clone() for name, tensor in weights.items()}


def format_card(
    task: Task, settings: Settings, step: int, metrics: dict[str, float], pictures: list[str], no_embedder: str | None
) -> str:
    """Return a model card in Markdown: the network, the data, the metrics and the files."""
    parameters = sum(p.numel() for p in task.model.parameters() if p.requires_grad)
    facts: dict[str, Any] = {"task": type(task).__name__, "network": type(task.model).__name__, **task.summary()}
    facts |= {"trained parameters": parameters, "steps": step, "seed": settings.seed}
    listed = {key: value for key, value in metrics.items() if not key.startswith("energy/")}
    lines = [f"# {getattr(settings, 'name', type(task).__name__)}", ""]
    lines += [f"Trained with hypersphere {__version__}; every setting is in `config.json`.", "", "| | |", "|---|---|"]
    lines += [f"| {key} | {value} |" for key, value in facts.items()]
    lines += ["", "| measure | value |", "|---|---|"]
    lines += [f"| {key} | {format_measure(key, value, 'g')} |" for key, value in listed.items()]
    lines += ["", *(f"![{name.removesuffix('.png')}](pictures/{name})" for name in pictures), ""]
    embedder = (
        "`embedder.safetensors` computes the features of image files."
        if no_embedder is None
        else f"There is no embedder: {no_embedder}."
    )
    lines += [
        "`model.safetensors` contains the last weights, `last.safetensors` and `best.safetensors` complete checkpoints, and",
        f"`log.jsonl` the measures over time. {embedder} This is a small research run. Do not use it for decisions about people.",
        "",
    ]
    return "\n".join(lines)


def format_measure(measure: str, value: float, form: str = "g") -> str:
    """Return a measure with its unit, or "undefined" if it is not finite, such as the energy of identical neurons.

    >>> format_measure("accuracy", 97.25), format_measure("energy/conv1", float("inf"))
    ('97.25 %', 'undefined')
    """
    return f"{value:.6{form}}{get_unit(measure)}" if math.isfinite(value) else "undefined"


def get_unit(measure: str) -> str:
    """Return the unit of a measure, preceded by a space.

    >>> get_unit("accuracy"), get_unit("intra_angle"), get_unit("lambda")
    (' %', ' rad', '')
    """
    percent = ("accuracy", "error", "eer", "auc", "tar", "rank1", "one_shot", "published_runs", "baseline", "interval")
    if measure.endswith("_angle"):
        return " rad"
    return " %" if any(word in measure for word in percent) else ""


def _plot_dynamics(pictures: pathlib.Path, settings: Settings, folder: pathlib.Path) -> None:
    """Plot the energy of every layer and the monitored metric over time, if there are more than two points."""
    monitor = settings.monitor.lstrip("-")
    rows = [row for row in read_log(folder) if monitor in row]
    if len(rows) < 3:
        return
    steps = [row["step"] for row in rows]
    energies = {k.removeprefix("energy/"): [row[k] for row in rows] for k in rows[-1] if k.startswith("energy/")}
    if energies:
        draw(pictures / "energy.png", plots.plot_dynamics, steps, energies, xlabel="step", ylabel="energy")
    curve = {monitor: [row[monitor] for row in rows]}
    label = f"{monitor}{get_unit(monitor)}"
    draw(pictures / "training.png", plots.plot_dynamics, steps, curve, xlabel="step", ylabel=label)
