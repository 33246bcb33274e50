"""Pictures of identities that a small network learns to distinguish within seconds, in every kind of source."""

import csv
import io
import pathlib
import tarfile

import numpy as np
from PIL import Image

# Small and fast: no test depends on the quality of the features.
QUICK = (
    "steps=24",
    "networks=1",
    "batch_size=16",
    "backbone.width=0.08",
    "feature_dim=16",
    "threads=1",
    "checkpoint_every=6",
)


def picture(identity: int, number: int, size: int = 16, channels: int = 1) -> np.ndarray:
    """Return the pattern of the identity, slightly shifted and with noise."""
    pattern = np.random.default_rng(1000 + identity).uniform(0, 255, (4, 4))
    draw = np.random.default_rng(identity * 1000 + number)
    grey = np.array(Image.fromarray(pattern.astype(np.uint8)).resize((size, size), Image.Resampling.BICUBIC))
    moved = np.roll(grey, tuple(draw.integers(-1, 2, 2)), (0, 1)) + draw.normal(0, 12, grey.shape)
    pixels = moved.clip(0, 255).astype(np.uint8)
    return pixels if channels == 1 else np.stack([pixels] * channels, -1)


def folder(
    root: pathlib.Path, identities: int = 10, images: int = 6, size: int = 16, first: int = 0, start: int = 0
) -> pathlib.Path:
    """Write ``root/<identity>/<number>.png``. Identities start at ``first`` and numbers at ``start``."""
    for identity in range(first, first + identities):
        (root / f"id{identity:02d}").mkdir(parents=True)
        for number in range(start, start + images):
            Image.fromarray(picture(identity, number, size)).save(root / f"id{identity:02d}" / f"{number}.png")
    return root


def table(root: pathlib.Path) -> pathlib.Path:
    """Write a CSV beside a folder of files."""
    folder(root / "files")
    with open(root / "table.csv", "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["path", "label"])
        rows.writerows([p.relative_to(root), p.parent.name] for p in sorted((root / "files").rglob("*.png")))
    return root / "table.csv"


def shards(root: pathlib.Path) -> pathlib.Path:
    """Write two tar files in WebDataset's layout."""
    root.mkdir()
    for half in range(2):
        with tarfile.open(root / f"part-{half}.tar", "w") as archive:
            for identity in range(half * 5, half * 5 + 5):
                for number in range(6):
                    stream = io.BytesIO()
                    Image.fromarray(picture(identity, number)).save(stream, "PNG")
                    for ending, content in (("png", stream.getvalue()), ("cls", b"id%02d" % identity)):
                        info = tarfile.TarInfo(f"{identity}_{number}.{ending}")
                        info.size = len(content)
                        archive.addfile(info, io.BytesIO(content))
    return root


def arrays(root: pathlib.Path) -> pathlib.Path:
    """Write an ``.npz`` file."""
    root.mkdir()
    images = np.stack([picture(identity, number) for identity in range(10) for number in range(6)])
    np.savez(root / "set.npz", images=images, labels=np.arange(10).repeat(6))
    return root / "set.npz"


def saved(root: pathlib.Path) -> pathlib.Path:
    """Write a folder as saved by ``datasets``."""
    import datasets

    rows = [(identity, number) for identity in range(10) for number in range(6)]
    images = [Image.fromarray(picture(*row)) for row in rows]
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(10)})
    made = datasets.Dataset.from_dict({"image": images, "label": [row[0] for row in rows]}, features=features)
    made.save_to_disk(str(root))
    return root


def in_python(root: pathlib.Path) -> object:
    """Return a torch dataset."""
    import torch

    class Drawn(torch.utils.data.Dataset):
        labels = torch.arange(10).repeat_interleave(6)

        def __len__(self):
            return 60

        def __getitem__(self, i):
            return torch.from_numpy(picture(i // 6, i % 6))[None], i // 6

    return Drawn()


SOURCES = {
    "folder": folder,
    "table": table,
    "shards": shards,
    "arrays": arrays,
    "saved": saved,
    "dataset": in_python,
}
