"""Features of all faces in all LFW pictures by a face model of the catalog, computed once and kept outside the repository.

The files are in the folder ``benchmarks`` beside the cached models. An interrupted run continues where it stopped.
To compute the features of one model ahead, with a limit of minutes:

    python benchmarks/_lfw_faces.py sface --minutes 9
"""

import argparse
import math
import pathlib
import time
from typing import NamedTuple

import numpy as np
import torch

from hypersphere import load
from hypersphere.data.lfw import LFW
from hypersphere.models.catalog import get_cache_folder

BLOCK = 256  # pictures per file
BATCH = 32  # pictures whose faces are embedded together


class Faces(NamedTuple):
    """Faces of all pictures, in the order of the pictures and by falling area.

    Attributes:
        picture: The index of the picture of each face, (m,).
        features: The features of each face, (m, d).
        central: For each picture the face nearest to the center, −1 if no face was found, (n,). LFW puts the named person there.
        seconds: CPU seconds of one thread per picture for detection, alignment and embedding.
    """

    picture: torch.Tensor
    features: torch.Tensor
    central: torch.Tensor
    seconds: float


def load_faces(data: LFW, name: str, minutes: float = math.inf, accept_licence: str | None = None) -> Faces:
    """Return the faces of all pictures, computing what is not cached yet.

    Raises:
        SystemExit: If ``minutes`` have passed before all pictures are done; call again to continue.
    """
    folder = get_cache_folder().parent / "benchmarks" / f"lfw-{name}-faces"
    folder.mkdir(parents=True, exist_ok=True)
    blocks = [(start, folder / f"{start:05}.npz") for start in range(0, len(data.data), BLOCK)]
    missing = [block for block in blocks if not block[1].exists()]
    embedder = load(name, accept_licence=accept_licence) if missing else None
    end = time.monotonic() + 60 * minutes
    for start, path in missing:
        if time.monotonic() > end:
            raise SystemExit(f"{folder}: stopped at picture {start} after {minutes} minutes; run again to continue")
        _write_block(embedder, data.data[start : start + BLOCK], start, path)
    parts = []
    for _, path in blocks:
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
    return Faces(picture, features, central, sum(float(part["seconds"]) for part in parts) / len(data.data))


def _write_block(embedder, pictures: torch.Tensor, first: int, path: pathlib.Path) -> None:  # type: ignore[no-untyped-def]
    start, index, distance, features = time.process_time(), [], [], []
    for rows in torch.arange(len(pictures)).split(BATCH):
        found = [(i, face) for i in rows.tolist() for face in embedder.preprocessing.load_all(pictures[i])]
        if found:
            index += [first + i for i, _ in found]
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
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop after this time")
    parser.add_argument("--accept-licence", metavar="NAME", help="accept a license that is not permissive")
    args = parser.parse_args()
    torch.set_num_threads(1)
    faces = load_faces(LFW(), args.name, args.minutes, args.accept_licence)
    print(f"{len(faces.picture)} faces in {len(faces.central)} pictures, {1e3 * faces.seconds:.0f} ms per picture")
