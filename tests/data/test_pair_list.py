import numpy as np
import pytest
import torch
from PIL import Image

from hypersphere.data import DataError
from hypersphere.data.pair_list import read_pair_list


@pytest.fixture
def faces(tmp_path):
    for name in ("Ann_B", "Carl"):
        (tmp_path / "images" / name).mkdir(parents=True)
        for i in (1, 2, 3):
            Image.fromarray(np.full((4, 4), 40 * i, np.uint8)).save(tmp_path / "images" / name / f"{name}_{i:04d}.png")
    return tmp_path


def written(folder, text):
    (folder / "pairs.txt").write_text(text)
    return folder / "pairs.txt"


def test_lines_of_two_paths_and_a_flag(faces):
    text = "Ann_B/Ann_B_0001.png Ann_B/Ann_B_0002.png 1\n\nAnn_B/Ann_B_0001.png,Carl/Carl_0003.png,0\n"
    listed = read_pair_list(written(faces, text), faces / "images")
    assert listed.index.tolist() == [[0, 1], [0, 2]]
    assert listed.same.tolist() == [True, False]
    assert listed.fold is None
    assert [record.label for record in listed.source.records] == ["Ann_B", "Ann_B", "Carl"]
    assert np.array(listed.source.sample(2)).max() == 120


def test_lfws_format_with_folds_and_without(faces):
    fold = "Ann_B\t1\t2\nAnn_B\t1\tCarl\t3\n"
    listed = read_pair_list(written(faces, f"2\t1\n{fold}Carl\t1\t2\nAnn_B\t2\tCarl\t1\n"), faces / "images")
    assert listed.fold.tolist() == [0, 0, 1, 1]
    assert listed.same.tolist() == [True, False, True, False]
    names = [record.name.rsplit("/", 1)[1] for record in listed.source.records]
    assert names[listed.index[1, 1]] == "Carl_0003.png"
    assert read_pair_list(written(faces, f"1\n{fold}"), faces / "images").fold is None


def test_paths_are_relative_to_the_list_by_default(faces):
    text = "images/Carl/Carl_0001.png\timages/Carl/Carl_0002.png\t1\nimages/Carl/Carl_0001.png\timages/Ann_B/Ann_B_0001.png\t0"
    assert torch.equal(read_pair_list(written(faces, text)).same, torch.tensor([True, False]))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no pair"),
        ("a.png b.png maybe\n", "line 1: two paths and 0 or 1"),
        ("2 1\nAnn_B 1 2\n", "must hold 4 pairs for 2 folds"),
        ("1\nAnn_B 1 2\nAnn_B 1\n", "line 3: a name and two numbers"),
        ("1\nAnn_B one 2\nAnn_B 1 Carl 1\n", "number of an image"),
        ("1\nAnn_B 1 2\nAnn_B 1 Carl 9\n", "there is no image .*Carl_0009"),
        ("Carl/Carl_0001.png Carl/Carl_0002.png 1\n", "pairs of one identity and of two"),
    ],
)
def test_refuses_with_the_line(faces, text, message):
    with pytest.raises(DataError, match=message):
        read_pair_list(written(faces, text), faces / "images")


def test_refuses_missing_files(faces):
    with pytest.raises(DataError, match="there is no file"):
        read_pair_list(faces / "absent.txt")
    with pytest.raises(DataError, match="there is no folder"):
        read_pair_list(written(faces, "1\n"), faces / "absent")
    (faces / "pairs.txt").write_bytes(b"\xff\xfe\x00\x81")
    with pytest.raises(DataError, match="is no text file"):
        read_pair_list(faces / "pairs.txt", faces / "images")
