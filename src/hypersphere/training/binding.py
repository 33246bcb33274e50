"""What a checkpoint belongs to: the settings, the data and the number of threads it was made with."""

import hashlib
import json
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..config import flat
from .datasets import is_stream

if TYPE_CHECKING:
    from .trainer import Trainer

FREE = ("timeout", "settings.timeout")  # of a config and of objects: these change nothing of what is computed


def bound_to(trainer: "Trainer") -> dict[str, Any]:
    """What every checkpoint of a run says about it: its settings, a digest of its training samples, its threads."""
    settings = comparable(trainer.document)
    return {"settings": settings, "data": data_digest(trainer.task), "threads": torch.get_num_threads()}


def check_bound(trainer: "Trainer", stored: Mapping[str, Any]) -> None:
    """Refuse a checkpoint of other settings or other data, each named; another number of threads is a warning."""
    here = trainer.bound
    changed = differing(stored["settings"], here["settings"])
    if changed:
        raise ValueError(
            f"{trainer.folder.path} holds a checkpoint of other settings ({changed}): set them back in config.json, or "
            "start a new run from it with --resume FOLDER --output NEW KEY=VALUE"
        )
    if None not in (stored["data"], here["data"]) and stored["data"] != here["data"]:
        raise ValueError(
            f"{trainer.folder.path} holds a checkpoint of other training data (digest {stored['data'][:12]} there, "
            f"{here['data'][:12]} here): bring the data back, or start a new run"
        )
    if stored["threads"] != here["threads"]:
        warnings.warn(
            f"the run was made with {stored['threads']} threads and goes on with {here['threads']}: its numbers will differ "
            "in the last bits from those of an uninterrupted run",
            stacklevel=2,
        )


def comparable(document: Mapping[str, Any]) -> dict[str, Any]:
    """A document on one level as JSON reads it back, without what changes nothing."""
    return {key: value for key, value in flat(json.loads(json.dumps(document))).items() if key not in FREE}


def differing(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """The settings that differ, in words; nothing if none does."""
    changed = [key for key in {**there, **here} if repr(there.get(key)) != repr(here.get(key))]
    return "; ".join(f"{key} is {there.get(key)!r} there, {here.get(key)!r} here" for key in changed)


def data_digest(task: Any) -> str | None:
    """SHA-256 of the training samples of a task and of its teacher; of files their labels, of a stream nothing (None)."""
    samples = getattr(task, "train_samples", None)
    if samples is None or is_stream(samples):
        return None
    whole = hashlib.sha256(repr([len(samples), list(map(str, samples.classes))]).encode())
    whole.update(getattr(task, "taught_by", "").encode())
    for tensor in (samples.labels, getattr(samples, "data", None)):
        if isinstance(tensor, Tensor):
            plain = tensor.detach().cpu().contiguous().flatten()
            whole.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
            whole.update(plain.view(torch.uint8).numpy().data if plain.numel() else b"")
    return whole.hexdigest()
