import gzip
import json

import pytest

from hypersphere.data import CorruptDataError, MissingDataError, open_source
from tests.data.files import tar

from .contracts import PIXELS, SourceContract, png


def members(names):
    return {
        f"set/{name}.{ending}": png(name) if ending == "png" else name[0].encode()
        for name in names
        for ending in ("png", "cls")
    }


class TestOneShard(SourceContract):
    def make(self, folder):
        return tar(folder / "s.tar", members(PIXELS), "w")


class TestFolderOfShards(SourceContract):
    def make(self, folder):
        names = list(PIXELS)
        for i in range(3):
            tar(folder / "shards" / f"s-{i:03d}.tar", members(names[2 * i : 2 * i + 2]), "w")
        return folder / "shards"

    def test_a_range_of_names(self, tmp_path):
        folder = self.make(tmp_path)
        assert len(open_source(f"{folder}/s-{{000..001}}.tar")) == 4
        with pytest.raises(MissingDataError, match=r"there is no shard .*s-003\.tar"):
            open_source(f"{folder}/s-{{000..003}}.tar")


class TestDescribedByJson(SourceContract):
    def make(self, folder):
        files = {}
        for name in PIXELS:
            files[f"{name}.png"] = png(name)
            files[f"{name}.json"] = json.dumps(
                {
                    "label": name[0],
                    "split": "train",
                    "is_query": True,
                    "x_1": 0,
                    "y_1": 0,
                    "x_2": 8,
                    "y_2": 8,
                    "more": 1,
                }
            ).encode()
        return tar(folder / "s.tar", files, "w")

    def test_fields(self, tmp_path):
        record = open_source(self.make(tmp_path)).records[0]
        assert (record.split, record.is_query, record.box) == ("train", True, (0, 0, 8, 8))


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"a.png": png("a0")}, r"found the sample a without a label, expected a file a\.cls"),
        ({"a.cls": b"1"}, "found the sample a without a picture or recording"),
        ({"a.png": png("a0"), "a.json": b"{"}, r"a\.json does not describe a sample"),
        ({"a.png": png("a0"), "a.json": b"[]"}, r"a\.json does not describe a sample"),
        ({"a.png": png("a0"), "a.json": b'{"label": 1, "x_1": 2}'}, "the crop box must be whole numbers"),
        ({"a.png": png("a0"), "a.cls": b"1" * (2 << 20)}, r"'a\.cls' of 2097152 bytes, expected at most 1048576"),
        ({}, "holds no sample"),
    ],
)
def test_refuses(tmp_path, files, message):
    with pytest.raises(ValueError, match=message):
        open_source(tar(tmp_path / "s.tar", files, "w"))


def test_damaged_and_compressed_shards(tmp_path):
    path = tar(tmp_path / "s.tar", members(PIXELS), "w")
    whole = path.read_bytes()
    path.write_bytes(gzip.compress(whole))
    with pytest.raises(
        CorruptDataError, match=r"s\.tar: found no plain tar file .*expected a whole tar file that is not compressed"
    ):
        open_source(path)
    path.write_bytes(whole[:600])
    with pytest.raises(CorruptDataError, match=r"s\.tar: found .* expected a whole tar file"):
        open_source(path)
    path.write_bytes(whole)
    source = open_source(path)
    path.write_bytes(whole[:600])
    with pytest.raises(CorruptDataError, match="fewer bytes than before"):
        source.fetch(5)
