"""A run of a config in a folder."""

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
    """A run of a config in a folder: ``Experiment(config, "runs/x").run()`` trains its task by a :class:`Trainer`.

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
        """Return the experiment that a folder holds.

        Args:
            folder: The folder of the run.
            trust: Import code outside the library that its settings name.

        Raises:
            ValueError: If the folder holds no run, or one of ``fit`` or of a task made in Python.
        """
        return cls(_stored_config(folder, trust), folder)

    @classmethod
    def fork(
        cls,
        folder: str | os.PathLike[str],
        new: str | os.PathLike[str],
        overrides: Sequence[str],
        *,
        trust: bool = False,
    ) -> "Experiment":
        """Start a new run in ``new`` from the newest checkpoint of another run, with ``key.path=value`` changed.

        The other run is only read. If changed settings change the network, its weights do not fit and a ``ValueError`` is raised.
        """
        stored = _stored_config(folder, trust)
        if not RunFolder(folder).last.exists():
            raise ValueError(f"{folder} has no checkpoint to start from")
        return cls(assign(as_call(stored), overrides).build(), new, start=folder)


def _stored_config(folder: str | os.PathLike[str], trust: bool) -> Config:
    document = stored_document(folder)
    if "fit" in document:
        source = document.get("source", {}).get("source", "SOURCE")
        raise ValueError(
            f"{folder} holds a run of fit, which the same fit command continues: hypersphere fit {source} -o {folder} "
            "with the settings of the first time"
        )
    if "settings" in document:
        raise ValueError(
            f"{folder} holds a run of a task made in Python: Trainer(task, folder, settings).run() with the same task and "
            "settings continues it"
        )
    return from_document(document, trust=trust)
