import importlib.metadata

import pytest

from hypersphere.data import DataError, FolderSource, Record, Source, open_source
from hypersphere.data.sources import registry, source_formats
from tests.data.files import encoded, random, write


def test_an_open_source_is_returned_unchanged(tmp_path):
    write(tmp_path, {f"{c}/1.png": encoded(random(4, 4)) for c in "ab"})
    source = open_source(tmp_path)
    assert open_source(source) is source


@pytest.mark.untyped
def test_refuses_other_objects(tmp_path):
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(DataError, match=r"notes\.txt is not a source: .*a table \(\.csv, .*a folder is$"):
        open_source(tmp_path / "notes.txt")
    with pytest.raises(ValueError, match="a source must be a path, a dataset or a pair of arrays, got int"):
        open_source(7)


@pytest.mark.parametrize(
    ("name", "option"), [("t.csv", "depth"), ("t.npz", "root"), ("t.tar", "labels"), ("t.parquet", "depth")]
)
def test_refuses_options_of_other_kinds(name, option):
    with pytest.raises(
        ValueError, match=rf"{option} does not belong to (a table|an array set|tar shards) \(.*\), which takes"
    ):
        open_source(name, **{option: "x" if option != "depth" else 1})


def test_a_list_of_paths_is_one_source(tmp_path):
    picture = encoded(random(4, 4))
    write(tmp_path, {"x/ann/2020/1.png": picture, "x/bob/1.png": picture, "y/eve/1.png": picture})
    (tmp_path / "t.csv").write_text("path,label\ny/eve/1.png,ann\ngone.png,zoe\n")
    source = open_source([tmp_path / "x", str(tmp_path / "y" / "eve" / "1.png"), tmp_path / "t.csv"], skip_missing=True)
    assert [record.label for record in source.records] == ["ann", "bob", "eve", "ann"]
    assert source.fetch(2) == picture
    assert len(source.files()) == 4
    assert source.missing == (str(tmp_path / "gone.png"),)
    assert len(source.digest()) == 64


class LineSource(Source):
    """One record per line of a text."""

    description = "a text (.lines)"

    def __init__(self, path, prefix=""):
        super().__init__(str(path), [Record(line, prefix + line) for line in path.read_text().split()])

    @classmethod
    def recognizes(cls, source):
        return str(source).endswith(".lines")

    def fetch(self, index):
        return b""


class Entry:
    name, value = "lines", "tests:LineSource"

    def __init__(self, content):
        self.content = content

    def load(self):
        if isinstance(self.content, Exception):
            raise self.content
        return self.content


@pytest.fixture
def installed(monkeypatch):
    def install(content):
        monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [Entry(content)])
        registry.source_formats.cache_clear()

    yield install
    registry.source_formats.cache_clear()


def test_formats_of_other_packages(tmp_path, installed):
    installed(LineSource)
    (tmp_path / "a.lines").write_text("ann bob")
    assert source_formats()[0] is LineSource
    assert open_source(tmp_path / "a.lines").classes == ("ann", "bob")
    with pytest.raises(ValueError, match=r"depth does not belong to a text \(.lines\), which takes prefix"):
        open_source(tmp_path / "a.lines", depth=2)


@pytest.mark.parametrize("content", [ImportError("broken"), dict])
def test_a_broken_package_is_named_in_a_warning(tmp_path, installed, content):
    installed(content)
    write(tmp_path, {f"{c}/1.png": encoded(random(4, 4)) for c in "ab"})
    with pytest.warns(UserWarning, match=r"source format lines \(tests:LineSource\) is not available"):
        assert isinstance(open_source(tmp_path), FolderSource)
