"""What a fit leaves: a folder, and everything in it as objects."""

import functools
import json
import os
import pathlib
from typing import Any

from ...evaluation import Baseline, OpenSetReport
from ...recognition import Embedder
from .choices import Choice
from .unseen_report import read_report

EMBEDDER, HELD_OUT, REPORT, CHOICES, CHECK = (
    *("embedder.safetensors", "held_out.safetensors", "report.json", "choices.json", "check.json"),
)


class Run:
    """A finished fit, read from its folder when asked for.

    Args:
        folder: The folder of the run.
        trust: Import code outside the library that the embedder file names. Use it only for your own runs.

    Raises:
        ValueError: if the folder holds no finished fit.

    >>> import tempfile
    >>> from hypersphere.training import Run
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name, content in (("report", {"figures": {"eer": {"value": 0.02}}}), ("choices", {"choices": []})):
    ...         _ = pathlib.Path(folder, f"{name}.json").write_text(json.dumps(content))
    ...     pathlib.Path(folder, "held_out.safetensors").touch()  # what a fit has left
    ...     Run(folder).metrics
    {'eer': 0.02}
    """

    def __init__(self, folder: str | os.PathLike[str], *, trust: bool = False):
        self.folder, self.trust = pathlib.Path(folder), trust
        absent = [name for name in (REPORT, CHOICES, HELD_OUT) if not (self.folder / name).is_file()]
        if absent:
            raise ValueError(f"{self.folder} holds no finished fit: there is no {absent[0]} in it")

    @functools.cached_property
    def embedder(self) -> Embedder:
        """The trained network with its preprocessing: pictures in, features out."""
        return Embedder.load(self.folder / EMBEDDER, trust=self.trust)

    @functools.cached_property
    def report(self) -> OpenSetReport:
        """The report on identities never trained on, computed from the features that were kept of them."""
        return read_report(self.folder / HELD_OUT)

    @functools.cached_property
    def metrics(self) -> dict[str, Any]:
        """The report's figures by name, without units and intervals; rates are fractions of 1."""
        figures = json.loads((self.folder / REPORT).read_text(encoding="utf-8"))["figures"]
        return {name: figure["value"] for name, figure in figures.items()}

    @functools.cached_property
    def baselines(self) -> tuple[Baseline, ...]:
        """Simple methods and pretrained networks on the same identities, the best first."""
        content = json.loads((self.folder / REPORT).read_text(encoding="utf-8"))
        return tuple(Baseline.from_dict(values) for values in content.get("baselines", ()))

    @functools.cached_property
    def choices(self) -> list[Choice]:
        """What was chosen, and why."""
        content = json.loads((self.folder / CHOICES).read_text(encoding="utf-8"))
        return [Choice(**choice) for choice in content["choices"]]

    @functools.cached_property
    def check(self) -> dict[str, Any]:
        """What the check of the source found."""
        return dict(json.loads((self.folder / CHECK).read_text(encoding="utf-8")))

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r})"
