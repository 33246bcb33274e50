"""Sources of ``fit.py``: Omniglot and LFW as folders, and splits of identities to choose defaults and to report."""

import csv
import pathlib
import shutil
import tarfile

import numpy as np
import torch

from hypersphere.data import identity_split, open_source
from hypersphere.data.roots import data_roots
from hypersphere.training.fitting.splits import divide


def find_file(name: str) -> pathlib.Path:
    """Return the path of a file below the data roots."""
    for root in data_roots():
        if (root / name).is_file():
            return root / name
    raise SystemExit(f"no data root holds {name}: set HYPERSPHERE_DATA")


def unpack_omniglot(work: pathlib.Path) -> pathlib.Path:
    """Unpack Omniglot into ``train/<character>/`` (background alphabets) and ``test/<character>/`` and return the folder."""
    folder = work / "omniglot"
    if not folder.exists():
        with tarfile.open(find_file("omniglot/omniglot_png.tar.xz")) as archive:
            archive.extractall(work / "unpacked", filter="data")
        for part, split in (("images_background", "train"), ("images_evaluation", "test")):
            for character in sorted((work / "unpacked" / part).glob("*/*")):
                target = work / "making" / split / f"{character.parent.name}_{character.name}"
                target.parent.mkdir(parents=True, exist_ok=True)
                character.rename(target)
        (work / "making").rename(folder)
    return folder


def write_small_set(work: pathlib.Path, seed: int) -> pathlib.Path:
    """Copy 10 drawings each of 30 random characters to a folder and return it."""
    folder = work / f"small{seed}"
    if not folder.exists():
        characters = sorted((unpack_omniglot(work) / "train").iterdir())
        order = torch.randperm(len(characters), generator=torch.Generator().manual_seed(seed))[:30]
        for i in order.tolist():
            (folder / characters[i].name).mkdir(parents=True)
            for file in sorted(characters[i].iterdir())[:10]:
                shutil.copy(file, folder / characters[i].name)
    return folder


def unpack_lfw(work: pathlib.Path) -> pathlib.Path:
    """Unpack LFW and return the folder of people."""
    if not (work / "lfw").exists():
        with tarfile.open(find_file("lfw/lfw_deepfunneled_crop128.tar.xz")) as archive:
            archive.extractall(work / "lfw", filter="data")
    return work / "lfw" / "lfw_deepfunneled_crop128"


def split_identities(
    labels: torch.Tensor, kept: torch.Tensor, chosen: torch.Tensor
) -> dict[str, tuple[set[int], set[int]]]:
    """Return for each phase the identities to train on and those to measure.

    The phase "choose" measures the identities of ``chosen``, which a plain fit holds out. The phase "report" measures a quarter
    of the others and also trains on those of ``chosen``.
    """
    others = torch.tensor(sorted(set(labels[kept].tolist()) - set(labels[chosen].tolist())))
    first, last = identity_split(others, [0.75, 0.25], seed=1)
    trained, selected, reported = (set(part.tolist()) for part in (others[first], labels[chosen], others[last]))
    return {"choose": (trained, selected), "report": (trained | selected, reported)}


def write_face_tables(work: pathlib.Path) -> dict[str, pathlib.Path]:
    """Write a table of LFW for each phase and return the paths."""
    tables = {phase: work / f"lfw_{phase}.csv" for phase in ("choose", "report")}
    if not all(path.exists() for path in tables.values()):
        source = open_source(unpack_lfw(work))
        train, held, *_ = divide(source, 0.2)
        for phase, (trained, measured) in split_identities(source.labels, torch.cat([train, held]), held).items():
            side = {**dict.fromkeys(trained, "train"), **dict.fromkeys(measured, "test")}
            with tables[phase].open("w", newline="") as file:
                rows = csv.writer(file)
                rows.writerow(["path", "label", "split"])
                for record, label in zip(source.records, source.labels.tolist(), strict=True):
                    if label in side:
                        where = unpack_lfw(work).relative_to(work) / record.name
                        rows.writerow([where, record.label, side[label]])
    return tables


def write_digit_sets(work: pathlib.Path) -> dict[str, pathlib.Path]:
    """Write an array file of the spoken digits for each phase and return the paths."""
    sets = {phase: work / f"spoken_{phase}.npz" for phase in ("choose", "report")}
    if not all(path.exists() for path in sets.values()):
        digits = find_file("spoken_digits/spoken_digits_48.npz")
        source = open_source(digits, images="mel", labels="speaker")
        train, held, *_ = divide(source, 0.2)
        raw = np.load(digits)
        for phase, (trained, measured) in split_identities(source.labels, torch.cat([train, held]), held).items():
            side = {**dict.fromkeys(trained, "train"), **dict.fromkeys(measured, "test")}
            kept = [i for i, label in enumerate(source.labels.tolist()) if label in side]
            split = np.array([side[source.labels[i].item()] for i in kept])
            np.savez(sets[phase], images=raw["mel"][kept], labels=raw["speaker"][kept], split=split)
    return sets
