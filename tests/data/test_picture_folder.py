import pytest
import torch
from PIL import Image

from hypersphere.data import MissingDataError, PictureFolder
from hypersphere.models import mlp
from hypersphere.training import Config, Selection, build_task, call


def draw(folder, classes, count=2, size=(10, 14)):
    for number, name in enumerate(classes):
        (folder / name).mkdir(parents=True)
        for i in range(count):
            Image.new("RGB", size[::-1], (40 * number + i, 100, 200)).save(folder / name / f"{i}.png")


def test_a_folder_with_both_parts(tmp_path):
    draw(tmp_path / "train", ["cat", "dog"], 3)
    draw(tmp_path / "val", ["cat", "dog"])
    train, test = (PictureFolder(tmp_path, part, size=8, center=4) for part in (True, False))
    assert (len(train), len(test), train.classes) == (6, 4, ("cat", "dog"))
    assert train[0][0].shape == (3, 8, 8)
    assert test[0][0].shape == (3, 4, 4)
    pixels, labels = test.batch(torch.tensor([0, 3]))
    assert pixels[:, 0, 0, 0].tolist() == [0, 41]
    assert labels.tolist() == [0, 1]


def test_the_center_is_cut_from_the_whole_picture(tmp_path):
    draw(tmp_path / "train", ["a"])
    (tmp_path / "test" / "a").mkdir(parents=True)
    picture = Image.new("RGB", (8, 8))
    picture.putpixel((2, 3), (255, 0, 0))
    picture.save(tmp_path / "test" / "a" / "0.png")
    pixels = PictureFolder(tmp_path, False, size=8, center=4)[0][0]
    assert pixels[0].nonzero().tolist() == [[1, 0]]


def test_one_folder_is_the_training_part(tmp_path, monkeypatch):
    draw(tmp_path / "people", ["ann", "bob"])
    monkeypatch.setenv("HYPERSPHERE_DATA", str(tmp_path))
    assert len(PictureFolder("people", size=8)) == 4
    with pytest.raises(MissingDataError, match=r"people has no test part: put pictures into .* samples.validation=0.1"):
        PictureFolder("people", False)
    with pytest.raises(MissingDataError, match="there is no folder nobody: searched nobody, "):
        PictureFolder("nobody")


def test_refuses_parts_of_other_classes_and_a_center_that_is_too_large(tmp_path):
    draw(tmp_path / "train", ["cat", "dog"])
    draw(tmp_path / "test", ["cat", "cow"])
    with pytest.raises(ValueError, match=r"test must hold the classes of .*train, got 2 and 2"):
        PictureFolder(tmp_path, False)
    with pytest.raises(ValueError, match="center must lie in 1 … 8 or be None, got 9"):
        PictureFolder(tmp_path, size=8, center=9)


def test_a_run_reads_a_folder(tmp_path):
    draw(tmp_path, ["a", "b", "c"], 6)
    data = call(PictureFolder, folder=str(tmp_path), size=(6, 8))
    task = build_task(
        Config(
            data=data, normalize="unit", samples=Selection(validation=0.5), backbone=call(mlp, width=0.05), batch_size=4
        )
    )
    assert (len(task.train_samples), len(task.measured_samples), task.num_classes) == (9, 9, 3)
    assert task.embed_batch(task.measured_samples.batch(torch.arange(2))[0]).shape[0] == 2
