import json
import os
import pickle

import numpy as np
import pytest
import torch

from hypersphere.data import CIFAR10, CIFAR100, CorruptDataError, MissingDataError

from .contracts import ReaderContract
from .files import cifar10, digest, encoded, random

PIXELS, LABELS = random(12, 3, 32, 32), [0, 9, 3, 1, 4, 1, 5, 9, 2, 6, 5, 3]


class TestBinary(ReaderContract):
    name = "cifar10"
    form = "binary"

    def make(self, root):
        cifar10(root / self.name, self.form, PIXELS, LABELS)

    def read(self, root):
        return CIFAR10(root)

    @pytest.mark.parametrize("train", [True, False])
    def test_returns_the_written_data(self, tmp_path, train):
        self.make(tmp_path)
        dataset, part = CIFAR10(tmp_path, train=train), slice(0, 10) if train else slice(10, 12)
        assert torch.equal(dataset.data, torch.from_numpy(PIXELS[part]))
        assert dataset.labels.tolist() == LABELS[part]

    def test_a_missing_batch_is_named(self, tmp_path):
        self.make(tmp_path)
        next((tmp_path / "cifar10").glob("data_batch_4*")).unlink()
        with pytest.raises(MissingDataError, match="holds no data_batch_4"):
            CIFAR10(tmp_path)


class TestPython(TestBinary):
    form = "python"


class TestSheets(TestBinary):
    form = "sheets"
    examples = 25


class TestHundredBinary(ReaderContract):
    name = "cifar100"

    def make(self, root):
        folder = root / "cifar100"
        folder.mkdir(parents=True)
        for part in ("train", "test"):
            coarse, fine = np.array(LABELS, np.uint8)[:, None], np.array(LABELS, np.uint8)[:, None] * 11
            (folder / f"{part}.bin").write_bytes(
                np.concatenate([coarse, fine, PIXELS.reshape(12, -1)], axis=1).tobytes()
            )

    def read(self, root):
        return CIFAR100(root)

    @pytest.mark.parametrize(("coarse", "factor", "count"), [(True, 1, 20), (False, 11, 100)])
    def test_fine_and_coarse_labels(self, tmp_path, coarse, factor, count):
        self.make(tmp_path)
        dataset = CIFAR100(tmp_path, train=False, coarse=coarse)
        assert dataset.labels.tolist() == [label * factor for label in LABELS]
        assert torch.equal(dataset.data, torch.from_numpy(PIXELS))
        assert len(dataset.classes) == count


class TestHundredPython(TestHundredBinary):
    def make(self, root):
        folder = root / "cifar100"
        folder.mkdir(parents=True)
        batch = {
            b"data": PIXELS.reshape(12, -1),
            b"coarse_labels": LABELS,
            b"fine_labels": [11 * label for label in LABELS],
        }
        for part in ("train", "test"):
            (folder / part).write_bytes(pickle.dumps(batch, protocol=4))


@pytest.mark.parametrize("protocol", range(6))
def test_every_protocol_of_pickle_is_read(tmp_path, protocol):
    TestPython().make(tmp_path)
    batch = {b"data": PIXELS[:2].reshape(2, -1), b"labels": [1, 2]}
    (tmp_path / "cifar10" / "test_batch").write_bytes(pickle.dumps(batch, protocol=protocol))
    assert torch.equal(CIFAR10(tmp_path, train=False).data, torch.from_numpy(PIXELS[:2]))


class Attack:
    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ((os.system, ("touch attacked",)), r"system is not part of a CIFAR batch"),
        ((eval, ("open('attacked', 'w')",)), r"eval is not part of a CIFAR batch"),
        ((np.load, ("attacked",)), r"is not part of a CIFAR batch"),
        ((np.dtype, ("O",)), "an array of .* where bytes were expected"),
        ((np.ndarray, ((1 << 50,),)), "TypeError"),
    ],
)
def test_a_pickle_cannot_run_anything(tmp_path, monkeypatch, call, message):
    TestPython().make(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cifar10" / "test_batch").write_bytes(pickle.dumps({b"data": Attack(*call), b"labels": [0]}))
    with pytest.raises(CorruptDataError, match=message):
        CIFAR10(tmp_path, train=False)
    assert not (tmp_path / "attacked").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x80\x02Nr\xff\xff\xff\x7f.", "memo index 2147483647 after 2 operations"),
        (b"\x80\x05\x96\x00\x00\x00\x00\x04\x00\x00\x00.", "but only 1 remain"),
    ],
)
def test_a_pickle_cannot_allocate_more_than_its_size(tmp_path, content, message):
    TestPython().make(tmp_path)
    (tmp_path / "cifar10" / "test_batch").write_bytes(content)
    with pytest.raises(CorruptDataError, match=message):
        CIFAR10(tmp_path, train=False)


@pytest.mark.parametrize(
    ("form", "file", "content", "message"),
    [
        ("binary", "test_batch.bin", bytes(3074), "3074 bytes, expected a multiple of 3073"),
        ("binary", "test_batch.bin", b"", "0 bytes"),
        ("binary", "test_batch.bin", b"\x0a" + bytes(3072), "label 10, expected integers 0 … 9"),
        ("python", "test_batch", pickle.dumps([1]), "expected a python batch"),
        (
            "python",
            "test_batch",
            pickle.dumps({b"data": PIXELS[:1, 0, 0], b"labels": [1]}),
            r"expected uint8 of \(n, 3072\)",
        ),
        (
            "python",
            "test_batch",
            pickle.dumps({b"data": PIXELS[:2].reshape(2, -1), b"labels": [1]}),
            "1 labels, expected a list of 2",
        ),
        ("python", "test_batch", pickle.dumps({b"data": PIXELS[:1].reshape(1, -1), b"labels": [True]}), "label True"),
        ("python", "test_batch", pickle.dumps({b"data": b"bytes", b"labels": [1]}), "expected uint8"),
        ("sheets", "test_batch.png", encoded(random(2, 1000, 3)), "rows of 1000 pixels, expected 1024"),
        ("sheets", "test_batch.png", b"no image", "do not decode"),
        ("sheets", "test_lables.json", b"[1, 2", "no JSON"),
        ("sheets", "test_lables.json", b"[" * 100000, "no JSON"),
        ("sheets", "test_lables.json", json.dumps([1]).encode(), "1 labels, expected a list of 2"),
        ("sheets", "test_lables.json", json.dumps([1, 2.5]).encode(), "label 2.5"),
        ("sheets", "test_lables.json", b'"12"', "no labels"),
    ],
)
def test_errors_describe_the_problem(tmp_path, form, file, content, message):
    cifar10(tmp_path / "cifar10", form, PIXELS, LABELS)
    (tmp_path / "cifar10" / file).write_bytes(content)
    with pytest.raises(CorruptDataError, match=rf"{file}: found .*{message}"):
        CIFAR10(tmp_path, train=False)


@pytest.mark.parametrize(
    ("train", "data", "labels"),
    [
        (True, "9d5c2eddadb0deff02c14c350c0385aab7b1d5ff1edfeb4997c8dc8644960111", "f5cfe00b0f00968c"),
        (False, "177777c33ba79825320efa646ad04a94bdc3c80e4ebe3bd21724f8cdfd4b9d56", "cbb7365de8ed11f0"),
    ],
)
def test_the_real_set(real, train, data, labels):
    dataset = CIFAR10(real("cifar10"), train=train)
    assert digest(dataset.data) == data
    assert digest(dataset.labels).startswith(labels)
    assert torch.bincount(dataset.labels).tolist() == [5000 if train else 1000] * 10
    if train:  # the first image of the original set is a frog with this first pixel
        assert dataset.data[0, :, 0, 0].tolist() == [59, 62, 63]
        assert dataset.classes[dataset.labels[0]] == "frog"


def test_a_batch_cut_after_a_whole_image_is_noticed(tmp_path):
    cifar10(tmp_path / "cifar10", "binary", PIXELS, LABELS)
    path = tmp_path / "cifar10" / "data_batch_2.bin"
    path.write_bytes(path.read_bytes()[:3073])
    with pytest.raises(CorruptDataError, match=r"batches of \[2, 1, 2, 2, 2\] images"):
        CIFAR10(tmp_path)


def test_a_python_batch_has_a_limit(tmp_path, monkeypatch):
    from hypersphere.data import cifar

    monkeypatch.setattr(cifar, "_MAX_BATCH_BYTES", 1000)
    (tmp_path / "cifar10").mkdir()
    (tmp_path / "cifar10" / "test_batch").write_bytes(bytes(2000))
    with pytest.raises(CorruptDataError, match="more than 1000 bytes"):
        CIFAR10(tmp_path, train=False)
