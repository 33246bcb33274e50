"""Run the recipes of a chapter in the size ``smoke``."""

import json

from hypersphere import recipes
from hypersphere.training import Experiment, read_log


def names_of(chapter):
    """Return the names of the recipes that a chapter defines."""
    return [name for name, entry in recipes.RECIPES.items() if entry.function.__module__ == chapter.__name__]


def run_whole(name, folder):
    """Train to the end, and check the files in the folder."""
    config = recipes.get(name).config("smoke")
    metrics = Experiment(config, folder).run()
    assert config.monitor.lstrip("-") in metrics
    rows = read_log(folder)
    assert rows[-1]["step"] == config.steps
    assert any("loss" in row for row in rows)
    assert json.loads((folder / "metrics.json").read_text())["steps"] == config.steps
    assert list((folder / "pictures").glob("*.png"))
    for left in (
        "config.json",
        "environment.json",
        "model.safetensors",
        "last.safetensors",
        "best.safetensors",
        "README.md",
    ):
        assert (folder / left).stat().st_size > 0
