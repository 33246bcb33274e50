"""The folder of a run, which explains itself: config, environment, log, checkpoints, metrics, pictures, model card."""

import copy
import datetime
import importlib.metadata
import json
import os
import pathlib
import platform
import shutil
from typing import Any

import safetensors.torch
import torch

from .. import __version__, plots
from ..orthogonal import merge
from .config import Config, differences, from_json, to_json
from .log import read_log
from .pictures import draw
from .storage import remove_leftovers, write_atomically, write_json, write_text
from .tasks import Task

PACKAGES = ("torch", "numpy", "accelerate", "safetensors", "scikit-learn", "scipy")


class Folder:
    """Paths of a run's files, and writing those that are not checkpoints."""

    def __init__(self, path: str | os.PathLike[str]):
        self.path = pathlib.Path(path)
        self.last, self.best = self.path / "last.safetensors", self.path / "best.safetensors"

    def open(self, config: Config, fresh: bool = False) -> None:
        """Make the folder, or check that it holds a run of the same config; ``fresh`` forgets a run it holds."""
        self.path.mkdir(parents=True, exist_ok=True)
        stored = self.path / "config.json"
        if fresh and stored.exists():
            for name in (
                "last.safetensors",
                "best.safetensors",
                "model.safetensors",
                "embedder.safetensors",
                "log.jsonl",
                "events.jsonl",
                "metrics.json",
                "README.md",
            ):
                (self.path / name).unlink(missing_ok=True)
            shutil.rmtree(self.path / "pictures", ignore_errors=True)
            stored.unlink()
        if stored.exists():
            changed = differences(from_json(stored.read_text(encoding="utf-8")), config)
            if changed:
                listed = "; ".join(f"{key} is {old!r} there, {new!r} here" for key, (old, new) in changed.items())
                raise ValueError(
                    f"{self.path} holds a run with other settings ({listed}): choose another folder, or start it afresh"
                )
        elif any(self.path.glob("*.safetensors")) or (self.path / "log.jsonl").exists():
            raise ValueError(f"{self.path} holds files of something else: choose an empty folder")
        remove_leftovers(self.path)
        write_text(stored, to_json(config))
        write_json(self.path / "environment.json", environment())

    def event(self, what: str, step: int) -> None:
        """One line of ``events.jsonl``: when the run started, resumed and ended, which the log does not say."""
        now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds")
        with open(self.path / "events.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps({"event": what, "step": step, "time": now}) + "\n")

    def seconds(self) -> float:
        """Wall time between starts and ends, as far as events tell."""
        path = self.path / "events.jsonl"
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
        times = [datetime.datetime.fromisoformat(row["time"]).timestamp() for row in rows]
        return sum(
            times[i + 1] - times[i]
            for i in range(len(rows) - 1)
            if rows[i]["event"] in ("start", "resume") and rows[i + 1]["event"] not in ("start", "resume")
        )

    def finish(self, task: Task, config: Config, step: int, metrics: dict[str, float]) -> None:
        """What is left when a run has ended: model, metrics, pictures, card."""
        # Rotations are multiplied in: the keys and shapes of the plain network.
        model = task.model if config.orthogonal.method == "none" else merge(copy.deepcopy(task.model))
        tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in model.state_dict().items()}
        write_atomically(
            self.path / "model.safetensors", lambda temporary: safetensors.torch.save_file(tensors, temporary)
        )
        task.keep(self.path, tensors)
        write_json(self.path / "metrics.json", {"steps": step, **metrics})
        pictures = self.path / "pictures"
        pictures.mkdir(exist_ok=True)
        if config.pictures:
            task.pictures(pictures)
            self._dynamics(pictures, config)
        write_text(
            self.path / "README.md",
            self._card(task, config, step, metrics, sorted(p.name for p in pictures.glob("*.png"))),
        )

    def _dynamics(self, pictures: pathlib.Path, config: Config) -> None:
        """Energy of every layer, and the monitored measure, over time."""
        rows = [row for row in read_log(self.path) if config.monitor.lstrip("-") in row]
        steps = [row["step"] for row in rows]
        energies = (
            {key.removeprefix("energy/"): [row[key] for row in rows] for key in rows[-1] if key.startswith("energy/")}
            if rows
            else {}
        )
        if len(rows) > 1 and energies:
            draw(pictures / "energy.png", plots.plot_dynamics, steps, energies, xlabel="step", ylabel="energy")
        if len(rows) > 1:
            name = config.monitor.lstrip("-")
            draw(
                pictures / "training.png",
                plots.plot_dynamics,
                steps,
                {name: [row[name] for row in rows]},
                xlabel="step",
                ylabel=name,
            )

    def _card(self, task: Task, config: Config, step: int, metrics: dict[str, float], pictures: list[str]) -> str:
        """A model card in Markdown."""
        parameters = sum(p.numel() for p in task.model.parameters() if p.requires_grad)
        facts = {
            "task": config.task,
            "data": config.data.name,
            **task.summary(),
            "network": config.model.name,
            "head": config.head.name,
        }
        facts |= {"trained parameters": parameters, "steps": step, "seed": config.seed}
        facts |= {"measured on": "held-out training data" if config.data.validation else "the test set"}
        shown = {key: value for key, value in metrics.items() if not key.startswith("energy/")}
        lines = [
            f"# {config.name}",
            "",
            f"Trained with hypersphere {__version__}; every setting is in `config.json`.",
            "",
            "| | |",
            "|---|---|",
        ]
        lines += [f"| {key} | {value} |" for key, value in facts.items()]
        lines += [
            "",
            "| measure | value |",
            "|---|---|",
            *(f"| {key} | {value:.6g} |" for key, value in shown.items()),
            "",
        ]
        lines += [f"![{name.removesuffix('.png')}](pictures/{name})" for name in pictures]
        lines += [
            "",
            "`model.safetensors` holds the last weights, `last.safetensors` and `best.safetensors` whole checkpoints, `log.jsonl` the",
            "measures over time. A small research run: not made for decisions about people.",
            "",
        ]
        return "\n".join(lines)


def environment() -> dict[str, Any]:
    """Versions and hardware, without names of machines or users."""
    versions = {package: _version(package) for package in PACKAGES}
    devices = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {
        "hypersphere": __version__,
        "python": platform.python_version(),
        "system": platform.system(),
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
        "devices": devices,
        "packages": versions,
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
