"""ModelNet: shapes as occupancy grids (ModelNet10) and as point clouds (ModelNet40)."""

import re

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor

from .arrays import read_h5, read_npy, read_npz
from .class_names import MODELNET10_NAMES, MODELNET40_NAMES
from .in_memory import InMemory
from .roots import Folder, Root, find_folder
from .streams import POINTS, Stream


class ModelNet10Voxels(InMemory):
    """3,984 training (``train``) or 907 test shapes, uint8 (n, 1, 30, 30, 30) of 0 and 1, without empty grids.

    Read from ``modelnet10_voxels/modelnet10.npz`` below a data root. :meth:`clouds` turns the grids into point clouds.

    >>> shapes = ModelNet10Voxels(train=False)  # doctest: +SKIP
    >>> shapes.data.shape, shapes.clouds(points=64).data.shape  # doctest: +SKIP
    (torch.Size([907, 1, 30, 30, 30]), torch.Size([907, 64, 3]))
    """

    def __init__(self, root: Root = None, train: bool = True):
        folder = find_folder("modelnet10", root)
        path, part = folder.get_file("modelnet10.npz"), "train" if train else "test"
        stored = read_npz(folder, path, (f"X_{part}", f"y_{part}"))
        grids, labels = stored[f"X_{part}"], stored[f"y_{part}"]
        is_binary = grids.dtype.kind in "biu" and (not grids.size or 0 <= grids.min() <= grids.max() <= 1)
        if grids.ndim != 4 or not is_binary:
            found = f"X_{part} of {grids.shape} {grids.dtype}"
            raise folder.make_corrupt_error(path, found, "grids (n, 30, 30, 30) of 0 and 1")
        checked = _check_labels(folder, str(path), labels, len(grids), 10)
        data = torch.from_numpy(grids.astype(np.uint8))
        kept = data.flatten(1).amax(1) > 0
        super().__init__(data[kept][:, None], checked[kept], MODELNET10_NAMES)

    def clouds(self, points: int = 1024, seed: int = 0) -> InMemory:
        """Return ``points`` surface points of each shape, float32 (n, points, 3), centered and scaled into the unit ball.

        Each point is drawn uniformly in a surface voxel (a voxel with an empty neighbor across a face). A shape with fewer surface voxels
        than points uses voxels repeatedly. The result depends only on ``seed``, on every platform.
        """
        if points < 1:
            raise ValueError(f"points must be an integer ≥ 1, got {points}")
        clouds = torch.empty(len(self), points, 3)
        for i, grid in enumerate(self.data[:, 0].bool()):
            voxels, stream = torch.nonzero(_find_surface(grid)), Stream(seed, POINTS, i)
            times = -(-points // len(voxels))
            chosen = torch.cat([stream.permutation(len(voxels)) for _ in range(times)])[:points]
            cloud = voxels[chosen] + stream.uniforms(points * 3).reshape(points, 3)
            cloud = cloud - cloud.mean(0)
            clouds[i] = cloud / cloud.norm(dim=1).max().clamp(min=1e-6)
        return InMemory(clouds, self.labels, self.classes)


class ModelNet10Clouds(InMemory):
    """The shapes of :class:`ModelNet10Voxels` as point clouds, float32 (n, points, 3).

    Args:
        root: One or several data roots.
        train: True for the training part, False for the test part.
        points: Number of surface points per shape.
        seed: Seed of the points.

    >>> shapes = ModelNet10Clouds(train=False, points=64)  # doctest: +SKIP
    >>> shapes.data.shape, shapes.classes[:3]  # doctest: +SKIP
    (torch.Size([907, 64, 3]), ('bathtub', 'bed', 'chair'))
    """

    def __init__(self, root: Root = None, train: bool = True, *, points: int = 1024, seed: int = 0):
        clouds = ModelNet10Voxels(root, train).clouds(points, seed)
        super().__init__(clouds.data, clouds.labels, clouds.classes)


class ModelNet40(InMemory):
    """9,840 training (``train``) or 2,468 test shapes as the first ``points`` of 2,048 surface points, float32 (n, points, 3).

    Read from ``modelnet40/`` below a data root: the HDF5 files that ``{train,test}_files.txt`` lists, or ``{train,test}_points.npy``
    and ``{train,test}_labels.npy``.

    >>> shapes = ModelNet40(train=False, points=512)  # doctest: +SKIP
    >>> shapes.data.shape, len(shapes.classes)  # doctest: +SKIP
    (torch.Size([2468, 512, 3]), 40)
    """

    def __init__(self, root: Root = None, train: bool = True, points: int = 1024):
        folder, part = find_folder("modelnet40", root), "train" if train else "test"
        listing = folder.find_file(f"{part}_files.txt")
        if listing is not None:
            lines = [line.strip() for line in listing.read_text("utf-8", "replace").splitlines()]
            names = [line.rpartition("/")[2] for line in lines if line]
            if not names or not all(re.fullmatch(r"[\w.-]+\.h5", name) for name in names):
                raise folder.make_corrupt_error(listing, f"the list {names}", "names of .h5 files, one per line")
            different = {path.name for path in folder.path.glob(f"*{part}*.h5")} ^ set(names)
            if different:
                found = f"{', '.join(sorted(different))} only in the list or only in the folder"
                raise folder.make_corrupt_error(listing, found, "a list of all files")
            files = [
                (str(folder.path / name), read_h5(folder, folder.get_file(name), ("data", "label"))) for name in names
            ]
        else:
            path = folder.get_file(f"{part}_points.npy", f"{part}_files.txt")
            labels_path = folder.get_file(f"{part}_labels.npy")
            files = [(str(path), {"data": read_npy(folder, path), "label": read_npy(folder, labels_path)})]
        parts = []
        for name, stored in files:
            clouds = stored["data"]
            if clouds.ndim != 3 or clouds.shape[2] != 3 or clouds.dtype.kind != "f" or not np.isfinite(clouds).all():
                raise folder.make_corrupt_error(
                    name, f"data of {clouds.shape} {clouds.dtype}", "finite points (n, 2048, 3)"
                )
            if not 1 <= points <= clouds.shape[1]:
                raise ValueError(f"points must lie in 1 … {clouds.shape[1]}, got {points}")
            labels = _check_labels(folder, name, stored["label"], len(clouds), 40)
            parts.append((torch.from_numpy(clouds[:, :points].astype(np.float32)), labels))
        super().__init__(
            torch.cat([data for data, _ in parts]), torch.cat([labels for _, labels in parts]), MODELNET40_NAMES
        )


def _check_labels(folder: Folder, where: str, labels: np.ndarray, count: int, classes: int) -> Tensor:
    are_integers = labels.size == count and labels.dtype.kind in "iu"
    if not are_integers or (count and not 0 <= labels.min() <= labels.max() < classes):
        found = f"labels of {labels.shape} {labels.dtype}"
        raise folder.make_corrupt_error(where, found, f"{count} integers 0 … {classes - 1}")
    return torch.from_numpy(labels.reshape(-1).astype(np.int64))


def _find_surface(grid: Bool[Tensor, "x y z"]) -> Bool[Tensor, "x y z"]:
    """Return occupied voxels with an empty neighbor across one of their six faces; everything outside the grid is empty."""
    padded = torch.nn.functional.pad(grid, (1,) * 6)
    inner = grid.clone()
    for axis in range(3):
        for step in (-1, 1):
            inner &= padded.roll(step, axis)[1:-1, 1:-1, 1:-1]
    return grid & ~inner
