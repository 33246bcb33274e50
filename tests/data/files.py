"""Small files in the formats of the datasets, and a digest of tensors."""

import hashlib
import io
import json
import pickle
import struct
import tarfile
from pathlib import Path

import numpy as np
from PIL import Image


def digest(tensor) -> str:
    return hashlib.sha256(tensor.contiguous().numpy().tobytes()).hexdigest()


def random(*shape, high=256, seed=0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, high, shape, dtype=np.uint8)


def idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def encoded(pixels: np.ndarray, kind: str = "PNG", bits: bool = False) -> bytes:
    """Return pixels (h, w) or (h, w, 3) as PNG or JPEG; ``bits`` stores one bit per pixel."""
    image, stream = Image.fromarray(pixels), io.BytesIO()
    (image.convert("1") if bits else image).save(stream, kind)
    return stream.getvalue()


def tar(path: Path, members: dict[str, bytes], mode: str = "w:xz") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, mode) as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def write(folder: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def cifar10(folder: Path, form: str, pixels: np.ndarray, labels: list[int]) -> None:
    """Write six batches of equal size, five of them for training, in one of the three formats; ``pixels`` (n, 3, 32, 32)."""
    folder.mkdir(parents=True, exist_ok=True)
    each = len(labels) // 6
    for i, stem in enumerate([f"data_batch_{k}" for k in range(1, 6)] + ["test_batch"]):
        part, names = pixels[i * each : (i + 1) * each].reshape(each, -1), labels[i * each : (i + 1) * each]
        if form == "binary":
            (folder / f"{stem}.bin").write_bytes(
                np.concatenate([np.array(names, np.uint8)[:, None], part], axis=1).tobytes()
            )
        elif form == "python":
            (folder / stem).write_bytes(
                pickle.dumps({b"data": part, b"labels": names, b"batch_label": b"part"}, protocol=2)
            )
        else:
            sheet = part.reshape(each, 3, 32, 32).transpose(0, 2, 3, 1).reshape(each, 1024, 3)
            (folder / f"{stem}.png").write_bytes(encoded(sheet))
    if form == "sheets":
        (folder / "train_lables.json").write_text(json.dumps(labels[: 5 * each]))
        (folder / "test_lables.json").write_text(json.dumps(labels[5 * each :]))
