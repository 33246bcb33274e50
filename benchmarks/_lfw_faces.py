"""Features of all faces in all LFW pictures by a face model of the catalog, computed once and kept outside the repository.

The files are in the folder ``benchmarks`` beside the cached models. An interrupted run continues where it stopped.
To compute the features of one model ahead, with a limit of minutes:

    python benchmarks/_lfw_faces.py sface --pairs --minutes 9
"""

import argparse
import dataclasses
import math
import pathlib
import time
from typing import NamedTuple

import numpy as np
import torch

from hypersphere import load
from hypersphere.data.lfw import LFW
from hypersphere.models.catalog import get_cache_folder
from hypersphere.recognition import Embedder

BLOCK = 256  # pictures per file
BATCH = 32  # pictures whose faces are embedded together


class Faces(NamedTuple):
    """Faces of all pictures, in the order of the pictures and by falling area.

    Attributes:
        picture: The index of the picture of each face, (m,).
        features: The features of each face, (m, d).
        central: For each picture the face nearest to the center, where LFW puts the named person; −1 without a face, (n,).
        seconds: CPU seconds of one thread per picture for detection, alignment and embedding.
    """

    picture: torch.Tensor
    features: torch.Tensor
    central: torch.Tensor
    seconds: float


def load_faces(
    data: LFW,
    name: str,
    rows: torch.Tensor | None = None,
    minutes: float = math.inf,
    accept_licence: str | None = None,
    mirror: bool = False,
) -> Faces:
    """Return the faces of all pictures, or of some, computing what is not cached yet.

    Args:
        data: The pictures.
        name: A face model of the catalog.
        rows: The pictures to look at; all by default.
        minutes: The time after which it stops with :class:`SystemExit`; call again to continue.
        accept_licence: The name again, to accept a license that is not permissive.
        mirror: Append the features of the mirror image of each face (Liu, 2020, 2.3).
    """
    embedder = load(name, accept_licence=accept_licence)
    if mirror:
        prepare = dataclasses.replace(embedder.preprocessing, mirror=True)
        embedder = Embedder(embedder.network, prepare, embedder.call)
    rows = torch.arange(len(data.data)) if rows is None else rows
    folder = get_cache_folder().parent / "benchmarks" / f"lfw-{name}-{embedder.fingerprint[:12]}-{len(rows)}"
    folder.mkdir(parents=True, exist_ok=True)
    parts = []
    end = time.monotonic() + 60 * minutes
    for i, block in enumerate(rows.split(BLOCK)):
        path = folder / f"{i:04}.npz"
        if not path.exists():
            if time.monotonic() > end:
                raise SystemExit(f"{folder}: stopped at block {i} after {minutes} minutes; run again to continue")
            _write_block(embedder, data.data[block], block, path)
        with np.load(path) as stored:
            parts.append({key: stored[key] for key in stored.files})
    picture, features, distance = (
        torch.from_numpy(np.concatenate([part[key] for part in parts])) for key in ("picture", "features", "distance")
    )
    central = torch.full((len(data.data),), -1)
    nearest = torch.full((len(data.data),), math.inf)
    for i, (one, value) in enumerate(zip(picture.tolist(), distance.tolist(), strict=True)):
        if value < nearest[one]:
            nearest[one], central[one] = value, i
    return Faces(picture, features, central, sum(float(part["seconds"]) for part in parts) / len(rows))


def find_paired_pictures(data: LFW) -> torch.Tensor:
    """Return the numbers of the pictures in the pairs of view 2."""
    pairs = data.pairs()
    return torch.cat([pairs.first, pairs.second]).unique()


def _write_block(embedder: Embedder, pictures: torch.Tensor, numbers: torch.Tensor, path: pathlib.Path) -> None:
    start, index, distance, features = time.process_time(), [], [], []
    for rows in torch.arange(len(pictures)).split(BATCH):
        found = [(i, face) for i in rows.tolist() for face in embedder.preprocessing.load_all(pictures[i])]
        if found:
            index += [int(numbers[i]) for i, _ in found]
            distance += [_measure_distance(face.info["box"], tuple(pictures.shape[2:])) for _, face in found]
            features.append(embedder(torch.stack([face.tensor for _, face in found])).numpy())
    temporary = path.with_suffix(".tmp.npz")
    seconds = time.process_time() - start
    np.savez(temporary, picture=index, distance=distance, features=np.concatenate(features), seconds=seconds)
    temporary.rename(path)
    print(path, f"{seconds:.0f} s", flush=True)


def _measure_distance(box: tuple[float, ...], size: tuple[int, ...]) -> float:
    """Return the distance between the center of a box and that of the picture."""
    return math.dist(((box[0] + box[2]) / 2, (box[1] + box[3]) / 2), (size[1] / 2, size[0] / 2))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", help="face model of the catalog")
    parser.add_argument("--pairs", action="store_true", help="only the pictures of the pairs of view 2")
    parser.add_argument("--mirror", action="store_true", help="append the features of the mirror image")
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop after this time")
    parser.add_argument("--accept-licence", metavar="NAME", help="accept a license that is not permissive")
    args = parser.parse_args()
    torch.set_num_threads(1)
    data = LFW()
    chosen = find_paired_pictures(data) if args.pairs else None
    faces = load_faces(data, args.name, chosen, args.minutes, args.accept_licence, args.mirror)
    count = len(data.data) if chosen is None else len(chosen)
    print(f"{len(faces.picture)} faces in {count} pictures, {1e3 * faces.seconds:.0f} ms per picture")
