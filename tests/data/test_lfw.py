import numpy as np
import pytest
import torch

from hypersphere.data import LFW, CorruptDataError, MissingDataError

from .contracts import ReaderContract
from .files import digest, encoded, random, tar, write

SMOOTH = np.kron(random(5, 4, 4, 3), np.ones((1, 32, 32, 1), np.uint8))  # JPEG changes smooth images little
FACES = {
    ("Ann", 1): SMOOTH[0],
    ("Ann", 2): SMOOTH[1],
    ("Bob", 1): SMOOTH[2],
    ("Cy_Dee", 1): SMOOTH[3],
    ("Cy_Dee", 3): SMOOTH[4],
}
LISTS = {
    "pairs.txt": b"2\t1\nAnn\t1\t2\nAnn\t2\tBob\t1\nCy_Dee\t3\t1\nBob\t1\tCy_Dee\t1\n",
    "pairsDevTrain.txt": b"1\nAnn\t2\t1\nBob\t1\tAnn\t1\n",
    "people.txt": b"2\n2\nAnn\t2\nBob\t1\n1\nCy_Dee\t2\n",
}


def jpegs(top="lfw_deepfunneled_crop128"):
    return {f"{top}/{name}/{name}_{i:04}.jpg": encoded(face, "JPEG") for (name, i), face in FACES.items()}


class TestCropped(ReaderContract):
    name = "lfw"
    examples = 15

    def make(self, root):
        tar(root / "lfw" / "lfw_deepfunneled_crop128.tar.xz", {**jpegs(), **LISTS})

    def read(self, root):
        return LFW(root)

    def test_people_and_images_are_sorted(self, tmp_path):
        self.make(tmp_path)
        dataset = self.read(tmp_path)
        assert dataset.classes == ("Ann", "Bob", "Cy_Dee")
        assert dataset.labels.tolist() == [0, 0, 1, 2, 2]
        off = dataset.data.int() - torch.from_numpy(SMOOTH).permute(0, 3, 1, 2).int()
        assert off.abs().float().mean() < 12  # JPEG stores color at half the resolution
        assert LFW(tmp_path, crop=112, size=32).data.shape == (5, 3, 32, 32)

    def test_pairs_of_both_views(self, tmp_path):
        self.make(tmp_path)
        dataset = self.read(tmp_path)
        view = dataset.pairs()
        assert list(zip(view.first.tolist(), view.second.tolist(), strict=True)) == [(0, 1), (1, 2), (4, 3), (2, 3)]
        assert view.same.tolist() == [True, False, True, False]
        assert view.fold.tolist() == [0, 0, 1, 1]
        development = dataset.pairs("train")
        assert (development.first.tolist(), development.second.tolist()) == ([1, 2], [0, 0])

    def test_folds_of_people(self, tmp_path):
        self.make(tmp_path)
        assert self.read(tmp_path).people().tolist() == [0, 0, 0, 1, 1]

    @pytest.mark.parametrize(
        ("name", "content", "message"),
        [
            ("pairs.txt", b"2\t1\nAnn\t1\t2\n", "1 pairs, expected 4 for 2 folds of 1 . 1"),
            ("pairs.txt", b"many\n", "no header"),
            ("pairs.txt", b"", "no header"),
            ("pairs.txt", b"1\t1\nAnn\t1\t3\nAnn\t1\tBob\t1\n", "image '3' of 'Ann', expected a face of the dataset"),
            ("pairs.txt", b"1\t1\nAnn\t1\tx\nAnn\t1\tBob\t1\n", "image 'x' of 'Ann'"),
            ("people.txt", b"2\n2\nAnn\t2\nBob\t1\n1\n", "expected folds of names"),
            ("people.txt", b"1\n1\nZoe\t2\n", "KeyError"),
            ("people.txt", b"1\n1\nAnn\t2\nBob\t1\n", "1 lines too many"),
            ("people.txt", b"", "IndexError"),
        ],
    )
    def test_errors_describe_the_problem_of_a_list(self, tmp_path, name, content, message):
        self.make(tmp_path)
        (tmp_path / "lfw" / name).write_bytes(content)  # a list beside the archive takes precedence
        dataset = self.read(tmp_path)
        with pytest.raises(CorruptDataError, match=f"{name}: found .*{message}"):
            dataset.pairs() if name == "pairs.txt" else dataset.people()

    def test_an_absent_list_is_named(self, tmp_path):
        self.make(tmp_path)
        with pytest.raises(MissingDataError, match=r"pairsDevTest\.txt is neither in .* nor beside it"):
            self.read(tmp_path).pairs("test")


class TestOriginal(TestCropped):
    """The original archive with 250×250 images, from which the reader crops the same square."""

    def make(self, root):
        large = {}
        for (name, i), face in FACES.items():
            image = np.zeros((250, 250, 3), np.uint8)
            image[64:192, 64:192] = face
            large[f"lfw-deepfunneled/{name}/{name}_{i:04}.jpg"] = encoded(image, "JPEG")
        tar(root / "lfw" / "lfw-deepfunneled.tgz", large, "w:gz")
        write(root / "lfw", LISTS)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"lfw/Ann/Ann_0001.jpg": encoded(random(100, 100, 3), "JPEG")}, "100×100, expected 250×250, or 128×128"),
        ({"lfw/Ann/Bob_0001.jpg": encoded(random(128, 128, 3), "JPEG")}, "no picture, expected <name>/<name>"),
    ],
)
def test_errors_describe_the_problem(tmp_path, files, message):
    tar(tmp_path / "lfw" / "lfw-deepfunneled.tgz", files, "w:gz")
    with pytest.raises(CorruptDataError, match=message):
        LFW(tmp_path)


@pytest.mark.slow
def test_the_real_set(real):
    dataset = LFW(real("lfw"), crop=112, size=64)
    assert dataset.data.shape == (13233, 3, 64, 64)
    assert digest(dataset.data) == "bfded2c62f1c75fd09aa9ed8b522fe18f48d9bd06e00462c7724951a50615f78"
    assert len(dataset.classes) == 5749
    assert int(torch.bincount(dataset.labels).max()) == 530
    view, people = dataset.pairs(), dataset.people()
    assert view.fold.bincount().tolist() == [600] * 10
    assert torch.equal(dataset.labels[view.first] == dataset.labels[view.second], view.same)
    assert (
        digest(torch.stack([view.first, view.second]))
        == "7b690a4ec41cf87d6fe4193574433e0dd0dc8d1ae4331114f44f388f1a3a7c92"
    )
    assert torch.equal(people[view.first], view.fold)
    assert torch.equal(people[view.second], view.fold)
    assert [len(dataset.pairs(view)) for view in ("train", "test")] == [2200, 1000]
