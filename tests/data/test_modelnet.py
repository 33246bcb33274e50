import h5py
import numpy as np
import pytest
import scipy.ndimage
import torch

from hypersphere.data import CorruptDataError, ModelNet10Voxels, ModelNet40
from hypersphere.data.modelnet import _find_surface

from .contracts import ReaderContract
from .files import digest, random

GRIDS = random(5, 30, 30, 30, high=2).astype(np.int32)
GRIDS[2] = 0
CLOUDS = np.random.default_rng(0).standard_normal((4, 16, 3)).astype(np.float32)


class TestVoxels(ReaderContract):
    name = "modelnet10"

    def make(self, root):
        (root / "modelnet10_voxels").mkdir(parents=True)
        labels = np.array([0, 3, 5, 9, 1])
        np.savez_compressed(
            root / "modelnet10_voxels" / "modelnet10.npz", X_train=GRIDS, y_train=labels, X_test=GRIDS, y_test=labels
        )

    def read(self, root):
        return ModelNet10Voxels(root)

    def test_empty_grids_are_left_out(self, tmp_path):
        self.make(tmp_path)
        dataset = ModelNet10Voxels(tmp_path, train=False)
        assert torch.equal(dataset.data[:, 0].int(), torch.from_numpy(GRIDS[[0, 1, 3, 4]]))
        assert dataset.labels.tolist() == [0, 3, 9, 1]

    def test_clouds_lie_on_the_surface_and_in_the_unit_ball(self, tmp_path):
        self.make(tmp_path)
        dataset = self.read(tmp_path)
        dataset.data[0] = 0
        dataset.data[0, 0, 10:20, 10:20, 10] = 1  # a plate: fewer voxels than points
        clouds = dataset.clouds(points=256, seed=3)
        assert clouds.data.shape == (4, 256, 3)
        torch.testing.assert_close(clouds.data.norm(dim=2).amax(1), torch.ones(4))
        torch.testing.assert_close(clouds.data.mean(1), torch.zeros(4, 3), atol=1e-5, rtol=0)
        extent = clouds.data[0].amax(0) - clouds.data[0].amin(0)
        assert extent[2] < 0.15 * extent[0]
        assert torch.equal(clouds.data, dataset.clouds(points=256, seed=3).data)
        assert not torch.equal(clouds.data, dataset.clouds(points=256, seed=4).data)

    def test_refuses_no_points(self, tmp_path):
        self.make(tmp_path)
        with pytest.raises(ValueError, match="points must be an integer ≥ 1, got 0"):
            self.read(tmp_path).clouds(points=0)


def test_the_surface_agrees_with_erosion():
    grid = torch.from_numpy(scipy.ndimage.gaussian_filter(np.random.default_rng(1).random((12, 12, 12)), 1.5) > 0.5)
    eroded = scipy.ndimage.binary_erosion(grid.numpy())
    assert torch.equal(_find_surface(grid), grid & ~torch.from_numpy(eroded))


class TestHDF5(ReaderContract):
    name = "modelnet40"
    label = np.array([[1], [39], [0], [7]], np.uint8)

    def make(self, root):
        folder = root / "modelnet40"
        folder.mkdir(parents=True)
        for part in ("train", "test"):
            (folder / f"{part}_files.txt").write_text(f"data/somewhere/{part}0.h5\ndata/somewhere/{part}1.h5\n")
            for i in range(2):
                with h5py.File(folder / f"{part}{i}.h5", "w") as file:
                    file.create_dataset("data", data=CLOUDS[2 * i : 2 * i + 2], fletcher32=True)
                    file.create_dataset("label", data=self.label[2 * i : 2 * i + 2])

    def read(self, root):
        return ModelNet40(root, points=10)

    @pytest.mark.parametrize("train", [True, False])
    def test_gives_the_first_points(self, tmp_path, train):
        self.make(tmp_path)
        dataset = ModelNet40(tmp_path, train=train, points=10)
        assert torch.equal(dataset.data, torch.from_numpy(CLOUDS[:, :10]))
        assert dataset.labels.tolist() == [1, 39, 0, 7]
        with pytest.raises(ValueError, match="points must lie in 1 … 16, got 1024"):
            ModelNet40(tmp_path, train=train)


class TestNumpy(TestHDF5):
    def make(self, root):
        (root / "modelnet40").mkdir(parents=True)
        for part in ("train", "test"):
            np.save(root / "modelnet40" / f"{part}_points.npy", CLOUDS)
            np.save(root / "modelnet40" / f"{part}_labels.npy", self.label[:, 0])


@pytest.mark.parametrize(
    ("points", "labels", "message"),
    [
        (CLOUDS[..., :2], TestHDF5.label, r"data of \(4, 16, 2\)"),
        (CLOUDS.astype(int), TestHDF5.label, "expected finite points"),
        (np.full_like(CLOUDS, np.nan), TestHDF5.label, "expected finite points"),
        (CLOUDS, TestHDF5.label[:3], r"labels of \(3, 1\) uint8, expected 4 integers 0 … 39"),
        (CLOUDS, TestHDF5.label + 1, "expected 4 integers"),
        (CLOUDS, TestHDF5.label.astype(float), "expected 4 integers"),
    ],
)
def test_errors_describe_the_problem_of_a_cloud(tmp_path, points, labels, message):
    np.save(tmp_path / "train_points.npy", points)
    np.save(tmp_path / "train_labels.npy", labels)
    with pytest.raises(CorruptDataError, match=message):
        ModelNet40(tmp_path, points=4)


@pytest.mark.parametrize("listing", ["", "../../train0.txt\n", "train 0.h5\n"])
def test_a_list_names_h5_files(tmp_path, listing):
    (tmp_path / "train_files.txt").write_text(listing)
    with pytest.raises(CorruptDataError, match=r"expected names of \.h5 files"):
        ModelNet40(tmp_path)


def test_a_list_cannot_lead_out_of_the_folder(tmp_path):
    TestHDF5().make(tmp_path / "root")
    (tmp_path / "root" / "modelnet40" / "train0.h5").rename(tmp_path / "train0.h5")
    (tmp_path / "root" / "modelnet40" / "train_files.txt").write_text("../../train0.h5\n")
    with pytest.raises(
        CorruptDataError, match=r"train_files\.txt: found train0\.h5, train1\.h5 only in the list or only"
    ):
        ModelNet40(tmp_path / "root")


def test_an_incomplete_list_is_detected(tmp_path):
    TestHDF5().make(tmp_path)
    (tmp_path / "modelnet40" / "test_files.txt").write_text("test0.h5\n")
    with pytest.raises(CorruptDataError, match=r"test_files\.txt: found test1\.h5 only in the list or only"):
        ModelNet40(tmp_path, train=False)


@pytest.mark.parametrize(
    ("grids", "labels", "message"),
    [
        (GRIDS + 1, np.zeros(5, int), "grids .* of 0 and 1"),
        (GRIDS[0], np.zeros(5, int), "grids"),
        (GRIDS, np.full(5, 10), "5 integers 0 … 9"),
        (GRIDS, np.zeros(4, int), "5 integers"),
    ],
)
def test_errors_describe_the_problem_of_a_grid(tmp_path, grids, labels, message):
    np.savez(tmp_path / "modelnet10.npz", X_train=grids, y_train=labels)
    with pytest.raises(CorruptDataError, match=message):
        ModelNet10Voxels(tmp_path)


@pytest.mark.parametrize(
    ("train", "count", "surface", "data"),
    [
        (True, 3984, None, "4aaf574a5f3159e7f7bceb06eacb32d8e45d2042fabd7b71b243eb0afc32fa93"),
        (False, 907, 1096, "73f24e2f98e7eb232255f2e78378ca784ec8f68ca4af05848818877e6ddbe2bf"),
    ],
)
def test_the_real_set(real, train, count, surface, data):
    dataset = ModelNet10Voxels(real("modelnet10"), train=train)
    assert dataset.data.shape == (count, 1, 30, 30, 30)
    assert digest(dataset.data) == data
    assert len(torch.bincount(dataset.labels)) == 10
    if not train:
        assert (
            int(torch.tensor([int(_find_surface(grid[0].bool()).sum()) for grid in dataset.data]).median()) == surface
        )
