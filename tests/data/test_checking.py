import json

import numpy as np
import pytest
import torch
from PIL import Image

from hypersphere.data import DataError, check, open_source
from hypersphere.data.checking import FORMAT
from hypersphere.data.media import Pictures
from tests.data.test_media import saved_again, smooth


@pytest.fixture
def folder(tmp_path):
    """Three people in two splits, with all kinds of findings."""
    seeds = {"train/ann": (0, 1, 2), "train/bob": (3, 4, 5), "test/cat": (6, 7), "test/dan": (8,)}
    for who, numbers in seeds.items():
        (tmp_path / who).mkdir(parents=True)
        for seed in numbers:
            _save(tmp_path / who / f"{seed}.png", smooth(seed))
    _save(tmp_path / "train/ann/again.png", smooth(0))
    _save(tmp_path / "test/cat/bob.png", saved_again(smooth(3), size=48))
    (tmp_path / "train/bob/text.jpg").write_text("not a picture")
    return tmp_path


def _save(path, pixels):
    Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(path)


def test_it_finds_everything(folder):
    report = check(folder)
    assert (report.images, report.identities) == (11, 4)
    assert report.per_identity == (1, 3.0, 4)
    assert report.singles == ("dan",)
    assert list(report.unreadable) == [str(folder / "train/bob/text.jpg")]
    assert report.sizes == (((64, 64, 3), 10), ((48, 48, 3), 1))
    assert report.median_size == (64, 64)
    (twins,) = report.duplicates
    assert twins.names == (str(folder / "train/ann/0.png"), str(folder / "train/ann/again.png"))
    (near,) = report.near_duplicates
    assert near.labels == ("bob", "cat")
    assert near.splits == ("test", "train")
    assert report.across_identities == report.across_splits == (near,)
    assert report.splits == {"test": (4, 2), "train": (7, 2)}
    assert report.shared_identities == ()
    assert len(report.readable) == 11


def test_it_says_so_in_words_and_in_json(folder):
    report = check(folder)
    text = str(report)
    assert "11 images of 4 identities: 1 to 4 images each, 3 at the median" in text
    assert "1 image cannot be read: train/bob/text.jpg (found " in text
    assert "1 identity has one image only: dan" in text
    assert "splits: test 4 images of 2 identities; train 7 images of 2 identities" in text
    content = json.loads(json.dumps(report.to_json()))
    assert content["format"] == FORMAT
    assert content["images_per_identity"] == {"least": 1, "median": 3.0, "most": 4}
    assert content["duplicates_across_splits"][0]["identities"] == ["bob", "cat"]


def test_a_clean_source(tmp_path):
    images = torch.stack([smooth(seed, 24, 1)[0] for seed in range(6)])
    report = check((images, torch.arange(6) // 2), workers=0)
    assert "3 identities: 2 images each" in str(report)
    assert "every image can be read, and there are no duplicates" in str(report)


def test_pictures_with_one_hash_are_told_apart_by_their_pixels(monkeypatch):
    flat = torch.full((5, 3, 8, 8), 200, dtype=torch.uint8)
    flat[1, 0, 3, 3] += 1  # too small a change for the perceptual hash
    flat[4] = 3 * torch.arange(64).view(8, 8).T
    digested, digest = [], Pictures.digest
    monkeypatch.setattr(Pictures, "digest", lambda self, *sample: digested.append(sample) or digest(self, *sample))
    report = check((flat, ["ann", "ann", "bob", "bob", "eve"]))
    assert [group.names for group in report.duplicates] == [tuple(f"the arrays[{i}]" for i in (0, 2, 3))]
    assert len(digested) == 4  # the fifth has a unique hash


def test_an_identity_in_two_splits_is_a_leak(tmp_path):
    images = torch.stack([smooth(seed, 24, 1)[0] for seed in range(4)])
    np.savez(
        tmp_path / "set.npz", x=images.numpy(), y=np.array([0, 0, 1, 1]), split=["train", "test", "train", "train"]
    )
    assert check(tmp_path / "set.npz").shared_identities == ("0",)


def test_a_box_counts_as_the_picture(tmp_path):
    _save(tmp_path / "one.png", smooth(0))
    rows = ["path,label,x_1,y_1,x_2,y_2", "one.png,a,0,0,32,32", "one.png,b,32,32,64,64", "gone.png,b,0,0,1,1"]
    (tmp_path / "table.csv").write_text("\n".join(rows))
    report = check(tmp_path / "table.csv")
    assert not report.duplicates
    assert report.sizes == (((32, 32, 3), 2),)
    assert list(report.unreadable) == [str(tmp_path / "gone.png")]


def test_progress_and_refusals(folder, tmp_path_factory):
    seen = []
    check(open_source(folder), progress=seen.append)
    assert seen == [12]
    empty = tmp_path_factory.mktemp("empty")
    with pytest.raises(DataError, match="holds no picture"):
        check(empty)
    (empty / "a").mkdir()
    (empty / "a" / "x.jpg").write_text("no")
    with pytest.raises(DataError, match=r"none of the 1 samples of .* can be read"):
        check(empty)


def test_it_names_what_is_not_used(folder):
    (folder / "train/ann/x.mov").write_bytes(b"mov")
    (folder / "train/bob/film.mp4").write_bytes(b"mp4")
    (folder / "train/bob/.hidden.txt").write_bytes(b"hidden")
    (folder / "loose.jpg").write_bytes((folder / "train/ann/0.png").read_bytes())
    (folder / "train/eve").mkdir()
    report = check(folder)
    assert report.unused == {
        "files beside the folders of identities": (str(folder / "loose.jpg"),),
        "files with the ending .mov": (str(folder / "train/ann/x.mov"),),
        "files with the ending .mp4": (str(folder / "train/bob/film.mp4"),),
        "empty folders": (str(folder / "train/eve"),),
    }
    assert "not used: files with the ending .mov (1): train/ann/x.mov" in str(report)
    assert json.loads(json.dumps(report.to_json()))["unused"]["empty folders"] == [str(folder / "train/eve")]
    assert check(open_source(folder, split="test")).unused == {}
