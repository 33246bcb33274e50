"""The sources of ``fit.py``: Omniglot and LFW as plain folders, and divisions of identities to choose and to report on."""

import csv
import pathlib
import shutil
import tarfile

import numpy as np
import torch

from hypersphere.data import identity_split, open_source
from hypersphere.data.roots import data_roots
from hypersphere.training.fitting.division import divide


def located(name: str) -> pathlib.Path:
    """A dataset's archive under a data root."""
    for root in data_roots():
        if (root / name).is_file():
            return root / name
    raise SystemExit(f"no data root holds {name}: set HYPERSPHERE_DATA")


def omniglot(work: pathlib.Path) -> pathlib.Path:
    """``train/<character>/…`` of the background alphabets and ``test/…`` of the others, as plain files."""
    folder = work / "omniglot"
    if not folder.exists():
        with tarfile.open(located("omniglot/omniglot_png.tar.xz")) as archive:
            archive.extractall(work / "unpacked", filter="data")
        for part, split in (("images_background", "train"), ("images_evaluation", "test")):
            for character in sorted((work / "unpacked" / part).glob("*/*")):
                target = work / "making" / split / f"{character.parent.name}_{character.name}"
                target.parent.mkdir(parents=True, exist_ok=True)
                character.rename(target)
        (work / "making").rename(folder)
    return folder


def small(work: pathlib.Path, seed: int) -> pathlib.Path:
    """30 characters with 10 drawings each."""
    folder = work / f"small{seed}"
    if not folder.exists():
        characters = sorted((omniglot(work) / "train").iterdir())
        order = torch.randperm(len(characters), generator=torch.Generator().manual_seed(seed))[:30]
        for i in order.tolist():
            (folder / characters[i].name).mkdir(parents=True)
            for file in sorted(characters[i].iterdir())[:10]:
                shutil.copy(file, folder / characters[i].name)
    return folder


def lfw(work: pathlib.Path) -> pathlib.Path:
    """People as a plain folder."""
    if not (work / "lfw").exists():
        with tarfile.open(located("lfw/lfw_deepfunneled_crop128.tar.xz")) as archive:
            archive.extractall(work / "lfw", filter="data")
    return work / "lfw" / "lfw_deepfunneled_crop128"


def thirds(labels: torch.Tensor, kept: torch.Tensor, chosen: torch.Tensor) -> dict[str, tuple[set[int], set[int]]]:
    """Identities to train on and to measure, to choose and to report: ``chosen`` are those a plain fit holds out."""
    others = torch.tensor(sorted(set(labels[kept].tolist()) - set(labels[chosen].tolist())))
    first, last = identity_split(others, [0.75, 0.25], seed=1)
    trained, looked, reported = set(others[first].tolist()), set(labels[chosen].tolist()), set(others[last].tolist())
    return {"choose": (trained, looked), "report": (trained | looked, reported)}


def faces(work: pathlib.Path) -> dict[str, pathlib.Path]:
    """A table of LFW for each phase."""
    tables = {phase: work / f"lfw_{phase}.csv" for phase in ("choose", "report")}
    if not all(path.exists() for path in tables.values()):
        source = open_source(lfw(work))
        train, held, _ = divide(source, 0.2)
        for phase, (trained, measured) in thirds(source.labels, torch.cat([train, held]), held).items():
            side = {**dict.fromkeys(trained, "train"), **dict.fromkeys(measured, "test")}
            with tables[phase].open("w", newline="") as file:
                rows = csv.writer(file)
                rows.writerow(["path", "label", "split"])
                for record, label in zip(source.records, source.labels.tolist(), strict=True):
                    if label in side:
                        where = lfw(work).relative_to(work) / record.name
                        rows.writerow([where, record.label, side[label]])
    return tables


def spoken(work: pathlib.Path) -> dict[str, pathlib.Path]:
    """An array set of the spoken digits for each phase."""
    sets = {phase: work / f"spoken_{phase}.npz" for phase in ("choose", "report")}
    if not all(path.exists() for path in sets.values()):
        digits = located("spoken_digits/spoken_digits_48.npz")
        source = open_source(digits, images="mel", labels="speaker")
        train, held, _ = divide(source, 0.2)
        raw = np.load(digits)
        for phase, (trained, measured) in thirds(source.labels, torch.cat([train, held]), held).items():
            side = {**dict.fromkeys(trained, "train"), **dict.fromkeys(measured, "test")}
            kept = [i for i, label in enumerate(source.labels.tolist()) if label in side]
            split = np.array([side[source.labels[i].item()] for i in kept])
            np.savez(sets[phase], images=raw["mel"][kept], labels=raw["speaker"][kept], split=split)
    return sets
