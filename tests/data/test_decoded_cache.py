import os
import pickle
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from hypersphere.data import (
    ArraySource,
    CorruptDataError,
    CropFlip,
    DataError,
    DecodedCache,
    Digits,
    Loader,
    PicturePreprocessing,
    cache_decoded,
    open_source,
)
from hypersphere.data.decoded_cache import get_cache_folder, write_cache

from .files import encoded, random, write


@pytest.fixture
def people(tmp_path):
    write(tmp_path / "set", {f"{i % 3}/{i}.png": encoded(random(6, 7, 3, seed=i)) for i in range(12)})
    return open_source(tmp_path / "set").dataset(PicturePreprocessing(size=(6, 6)))


@pytest.mark.parametrize("workers", [0, 2])
def test_gives_what_the_dataset_gives(people, tmp_path, workers):
    cache = cache_decoded(people, tmp_path / "cache", workers)
    index = torch.tensor([7, 0, 7])
    assert torch.equal(cache.batch(index)[0], people.batch(index)[0])
    assert torch.equal(cache[11][0], people[11][0])
    assert cache.labels.equal(people.labels)
    assert cache.classes == people.classes
    assert torch.equal(cache.in_memory().data, people.in_memory().data)
    assert len(cache) == 12
    options = {"seed": 1, "augment": CropFlip(1)}
    for (a, _), (b, _) in zip(Loader(cache, 5, **options), Loader(people, 5, workers=2, **options), strict=True):
        assert torch.equal(a, b)


def test_is_made_once(people, tmp_path, monkeypatch):
    cache_decoded(people, tmp_path / "cache")
    monkeypatch.setattr(type(people), "batch", lambda *_: pytest.fail("decoded again"))
    assert len(cache_decoded(people, tmp_path / "cache")) == 12
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_other_files_or_another_preprocessing_are_another_cache(people, tmp_path):
    names = {cache_decoded(people, tmp_path / "cache").path}
    source = people.source
    names.add(cache_decoded(source.dataset(PicturePreprocessing(size=(5, 6))), tmp_path / "cache").path)
    names.add(
        cache_decoded(source.part(torch.arange(6)).dataset(PicturePreprocessing(size=(6, 6))), tmp_path / "cache").path
    )
    same = source.dataset(PicturePreprocessing(size=(6, 6), mean=0.1, std=0.9, mirror=True))
    assert cache_decoded(same, tmp_path / "cache").path in names  # scaling is applied after the cache
    os.utime(source.records[0].name, ns=(1, 1))
    names.add(cache_decoded(people, tmp_path / "cache").path)
    assert len(names) == 4


def test_arrays_have_a_digest_and_datasets_have_none(tmp_path):
    pixels = random(4, 6, 6)
    first, second = (
        cache_decoded(ArraySource(p, ["a", "b", "a", "b"]).dataset(PicturePreprocessing(size=(6, 6))), tmp_path)
        for p in (pixels, pixels + 1)
    )
    assert first.path != second.path
    with pytest.raises(ValueError, match="Digits does not come from files, so it has no digest"):
        cache_decoded(open_source(Digits()).dataset(PicturePreprocessing()), tmp_path)


def test_is_a_safetensors_file_and_goes_to_other_processes(people, tmp_path):
    cache = cache_decoded(people, tmp_path / "cache")
    assert torch.equal(load_file(cache.path)["data"], people.in_memory().data)
    carried = pickle.dumps(cache)
    assert len(carried) < 1000
    assert torch.equal(pickle.loads(carried)[3][0], people[3][0])


def test_every_flipped_bit_is_found(people, tmp_path):
    path = cache_decoded(people, tmp_path / "cache").path
    whole = path.read_bytes()
    generator = np.random.default_rng(0)
    end = 8 + int.from_bytes(whole[:8], "little")
    places = [*generator.integers(0, end, 150), *generator.integers(end, len(whole), 150)]
    for place in map(int, places):
        changed = bytearray(whole)
        changed[place] ^= 1 << int(generator.integers(8))
        path.write_bytes(changed)
        with pytest.raises(CorruptDataError, match=path.name):
            DecodedCache(path).in_memory()
    for length in (0, 4, 100, end, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(CorruptDataError, match="delete it"):
            DecodedCache(path)


def test_a_killed_writer_leaves_no_cache_and_its_rest_is_removed(people, tmp_path):
    folder = tmp_path / "cache"
    script = """
import sys, time
from hypersphere.data import PicturePreprocessing, cache_decoded, open_source, SourceDataset
dataset = open_source(sys.argv[1]).dataset(PicturePreprocessing(size=(6, 6)))
whole = SourceDataset.batch
SourceDataset.batch = lambda self, index: (print("writing", flush=True), time.sleep(60))
cache_decoded(dataset, sys.argv[2])
"""
    command = [sys.executable, "-c", script, str(tmp_path / "set"), str(folder)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ) as process:
        assert process.stdout.readline() == b"writing\n"
        time.sleep(0.1)
        process.send_signal(signal.SIGKILL)
    left = list(folder.iterdir())
    assert [path.suffix for path in left] == [".part"]
    other = folder / left[0].name.replace(str(process.pid), str(os.getpid()))
    left[0].rename(folder / left[0].name)
    other.write_bytes(b"")  # file of a running process
    cache_decoded(people, folder)
    assert not left[0].exists()


def test_a_full_disk_gives_a_clear_error(people, tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 10}))
    with pytest.raises(DataError, match=r"cache has too little space for .* GB of decoded samples"):
        cache_decoded(people, tmp_path / "cache")
    assert not list((tmp_path / "cache").iterdir())


def test_a_damaged_picture_leaves_no_file(people, tmp_path):
    write(tmp_path / "set", {"0/bad.png": b"x"})
    dataset = open_source(tmp_path / "set").dataset(PicturePreprocessing(size=(6, 6)))
    with pytest.raises(CorruptDataError, match=r"bad\.png"):
        cache_decoded(dataset, tmp_path / "cache")
    assert not list((tmp_path / "cache").iterdir())


def test_blocks_must_fit_the_shape(tmp_path):
    with pytest.raises((AssertionError, ValueError)):
        write_cache(tmp_path / "x", (3, 1, 2, 2), torch.arange(3), "abc", [np.zeros((2, 1, 2, 2), np.uint8)])
    assert not list(tmp_path.iterdir())


def test_the_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("HYPERSPHERE_CACHE", str(tmp_path))
    assert get_cache_folder() == tmp_path
    monkeypatch.delenv("HYPERSPHERE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
    assert get_cache_folder() == tmp_path / "x" / "hypersphere" / "decoded"
