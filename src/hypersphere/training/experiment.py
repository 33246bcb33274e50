"""Runs of a :class:`Config` in a folder."""

import os
from collections.abc import Sequence
from typing import Any

import torch

from ..config import as_call, assign, encode
from .build import build_task
from .errors import explain_misfits
from .processes import seed_generators
from .run_folder import RunFolder, stored_document
from .settings import Config, from_document
from .trainer import Callback, Trainer


class Experiment(Trainer):
    """A :class:`Trainer` of the task of a config: ``Experiment(config, "runs/x").run()``.

    Args:
        config: All settings of the run.
        folder: Folder for all files of the run.
        callbacks: Objects that are called after steps and evaluations.
        fresh: Delete a run that the folder contains.
        start: Folder of another run from whose newest checkpoint this run starts, with its own settings.

    Raises:
        ValueError: If the parts do not fit together.

    >>> import tempfile
    >>> from hypersphere.training import Config, Experiment, call
    >>> config = Config(steps=2, backbone=call(hs.models.cnn3, table="E.3", width=0.1), threads=1, pictures=False)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     metrics = Experiment(config, folder).run()
    >>> metrics["accuracy"] > 0
    True
    """

    guard = staticmethod(explain_misfits)

    def __init__(
        self,
        config: Config,
        folder: str | os.PathLike[str],
        *,
        callbacks: Sequence[Callback] = (),
        fresh: bool = False,
        start: str | os.PathLike[str] | None = None,
    ):
        if config.threads:
            torch.set_num_threads(config.threads)
        seed_generators(config.seed)
        self.config = config
        document: dict[str, Any] = encode(config, defaults=True)
        options: dict[str, Any] = {"callbacks": callbacks, "fresh": fresh, "document": document, "start": start}
        with explain_misfits():
            super().__init__(build_task(config), folder, config, **options)

    @classmethod
    def resume(cls, folder: str | os.PathLike[str], *, trust: bool = False) -> "Experiment":
        """Return the experiment of a run folder.

        Args:
            folder: The folder of the run.
            trust: Import code outside the library that its settings name.

        Raises:
            ValueError: If the folder contains no run, a run of ``fit``, or a run of a task made in Python.
        """
        return cls(_read_config(folder, trust), folder)

    @classmethod
    def fork(
        cls,
        folder: str | os.PathLike[str],
        new: str | os.PathLike[str],
        overrides: Sequence[str],
        *,
        trust: bool = False,
    ) -> "Experiment":
        """Start a new run from the newest checkpoint of another run, which is not changed.

        Args:
            folder: The folder of the other run.
            new: The folder of the new run.
            overrides: Changed settings, ``"key.path=value"``.
            trust: Import code outside the library that the settings name.

        Raises:
            ValueError: If there is no checkpoint, or its weights do not fit the changed network.
        """
        stored = _read_config(folder, trust)
        if not RunFolder(folder).last.exists():
            raise ValueError(f"{folder} has no checkpoint to start from")
        return cls(assign(as_call(stored), overrides).build(), new, start=folder)


def _read_config(folder: str | os.PathLike[str], trust: bool) -> Config:
    document = stored_document(folder)
    if "fit" in document:
        source = document.get("source", {}).get("source", "SOURCE")
        raise ValueError(
            f"{folder} holds a run of fit, which only fit can resume: hypersphere fit {source} -o {folder} "
            "with the original settings"
        )
    if "settings" in document:
        raise ValueError(
            f"{folder} holds a run of a task made in Python: resume it with Trainer(task, folder, settings).run() and the "
            "same task and settings"
        )
    return from_document(document, trust=trust)
