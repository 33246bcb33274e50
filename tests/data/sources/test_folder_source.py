import pytest

from hypersphere.data import CorruptDataError, DataError, MissingDataError, PicturePreprocessing, open_source
from hypersphere.data.images import HAS_HEIF
from tests.data.files import encoded, random, write

from .contracts import PIXELS, SourceContract, png


class TestFolder(SourceContract):
    def make(self, folder):
        write(folder / "set", {f"{name[0]}/{name}.png": png(name) for name in PIXELS})
        return folder / "set"


class TestFolderOfSplits(SourceContract):
    def make(self, folder):
        write(
            folder / "set",
            {f"{'train' if name[1] == '0' else 'Val'}/{name[0]}/{name}.png": png(name) for name in PIXELS},
        )
        return str(folder / "set")

    def test_the_splits(self, tmp_path):
        source = open_source(self.make(tmp_path))
        assert source.splits == ("Val", "train")
        assert {record.split for record in open_source(self.make(tmp_path / "2"), split="train").records} == {"train"}
        with pytest.raises(ValueError, match=r"split must be one of Val, train of .*, got 'test'"):
            open_source(self.make(tmp_path / "3"), split="test")


def test_nested_folders_and_depth(tmp_path):
    write(tmp_path, {f"{a}/{c}/deep/{i}.PGM": b"P5 1 1 255\n\0" for a in "xy" for c in "12" for i in range(2)})
    write(tmp_path, {"x/notes.txt": b"", "x/.hidden.png": b"", "top.png": b""})
    assert open_source(tmp_path).classes == ("x", "y")
    assert open_source(tmp_path, depth=2).classes == ("x/1", "x/2", "y/1", "y/2")
    with pytest.raises(DataError, match=r"0\.PGM must lie below 4 levels of folders"):
        open_source(tmp_path, depth=4)
    with pytest.raises(ValueError, match="depth must be an integer ≥ 1"):
        open_source(tmp_path, depth=0)


def test_whole_numbers_are_sorted_by_value(tmp_path):
    write(tmp_path, {f"{c}/0.png": encoded(random(4, 4)) for c in (10, 9, 2)})
    assert open_source(tmp_path).classes == ("2", "9", "10")


def test_errors_are_clear(tmp_path):
    with pytest.raises(MissingDataError, match=r"there is no file or folder .*nowhere"):
        open_source(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"the folder .*empty holds no picture \(\.png"):
        open_source(tmp_path / "empty")
    write(tmp_path / "flat", {"a.png": encoded(random(4, 4))})
    with pytest.raises(
        DataError,
        match=r"flat holds one identity \(flat\); .*; put the files of each identity into a sub-folder",
    ):
        open_source(tmp_path / "flat")
    write(tmp_path / "one", {"a/1.png": encoded(random(4, 4))})
    with pytest.raises(DataError, match=r"one holds one identity \(a\); at least 2 are needed"):
        open_source(tmp_path / "one")
    assert len(open_source(tmp_path / "one", identities=1)) == 1
    with pytest.raises(ValueError, match="labels does not belong to a folder, which takes depth"):
        open_source(tmp_path / "one", labels="y")


@pytest.mark.untyped
def test_a_text_file_with_the_ending_jpg(tmp_path):
    write(tmp_path, {"a/1.png": encoded(random(4, 4)), "b/1.png": encoded(random(4, 4)), "b/text.jpg": b"hello"})
    source = open_source(tmp_path)
    with pytest.raises(CorruptDataError, match=r"text\.jpg: found 5 bytes that do not decode"):
        source.load(2, PicturePreprocessing())
    with pytest.warns(UserWarning, match=r"1 samples cannot be read and are left out: .*text\.jpg: found 5 bytes"):
        assert len(open_source(tmp_path, on_error="skip")) == 2
    with pytest.raises(ValueError, match="on_error must be 'raise' or 'skip'"):
        open_source(tmp_path, on_error="ignore")
    write(tmp_path / "bad", {"a/1.png": b"", "b/1.png": b"x"})
    with pytest.raises(CorruptDataError, match=r"none of the 2 samples of .*bad can be read: .*1\.png: found 0 bytes"):
        open_source(tmp_path / "bad", on_error="skip")


def test_files_outside_the_folder_are_not_read(tmp_path):
    write(tmp_path, {"outside.png": encoded(random(4, 4))})
    write(tmp_path / "root", {"a/1.png": encoded(random(4, 4)), "b/1.png": encoded(random(4, 4))})
    source = open_source(tmp_path / "root")
    (tmp_path / "root" / "a" / "1.png").unlink()
    (tmp_path / "root" / "a" / "1.png").symlink_to(tmp_path / "outside.png")
    for read in (lambda: source.fetch(0), lambda: open_source(tmp_path / "root")):
        with pytest.raises(CorruptDataError, match="link out of the data root"):
            read()


@pytest.mark.untyped
def test_loose_images_are_kept_on_request_or_if_there_is_nothing_else(tmp_path):
    picture = encoded(random(4, 4))
    write(tmp_path / "people", {"ann/2020/1.png": picture, "bob/2020/1.png": picture, "group.png": picture})
    assert open_source(tmp_path / "people").classes == ("ann", "bob")
    assert open_source(tmp_path / "people", loose="keep").classes == ("ann", "bob", "people")
    write(tmp_path / "flat", {"1.png": picture, "2.png": picture})
    assert open_source(tmp_path / "flat", identities=1).classes == ("flat",)
    with pytest.raises(ValueError, match="loose must be 'skip' or 'keep', got 'all'"):
        open_source(tmp_path / "flat", loose="all")


def test_a_file_belongs_to_its_folder(tmp_path):
    write(tmp_path, {"ann/1.QOI": encoded(random(4, 4))})
    assert [record.label for record in open_source(tmp_path / "ann" / "1.QOI", identities=1).records] == ["ann"]
    with pytest.raises(MissingDataError, match=r"there is no file .*2\.png"):
        open_source(tmp_path / "ann" / "2.png")


def test_one_line_counts_files_that_are_not_used(tmp_path, caplog):
    write(tmp_path, {f"set/{who}/1.png": encoded(random(4, 4)) for who in ("ann", "bob")})
    write(tmp_path, {"set/ann/film.MP4": b"x", "set/bob/film.mp4": b"x", "set/notes": b"x", "set/loose.png": b"x"})
    (tmp_path / "set" / "eve").mkdir()
    line = (
        "not used: files with the ending .mp4 (2), files beside the folders of identities (1), files with no ending (1), "
        "empty folders (1)"
    )
    source = open_source(tmp_path / "set")
    assert [record.getMessage() for record in caplog.records] == [f"{tmp_path / 'set'}: {line}"]
    open_source(source)  # no second warning for an open source
    assert len(caplog.records) == 1
    open_source([tmp_path / "set", tmp_path / "set" / "ann"])
    assert "files with the ending .mp4 (3)" in caplog.records[-1].getMessage()
    caplog.clear()
    open_source(tmp_path / "set" / "ann" / "1.png", identities=1)
    assert not caplog.records


def test_the_error_for_a_folder_of_other_files_lists_them(tmp_path):
    write(tmp_path, {"ann/film.mp4": b"x"})
    with pytest.raises(DataError, match=r"holds no picture .*; it holds files with the ending \.mp4 \(1\)"):
        open_source(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"holds no picture [^;]*$"):
        open_source(tmp_path / "empty")


@pytest.mark.skipif(HAS_HEIF, reason="pillow-heif is installed, so HEIC files are read")
def test_heic_files_are_named_with_the_package_that_reads_them(tmp_path, caplog):
    write(tmp_path, {"ann/1.png": encoded(random(4, 4)), "ann/2.HEIC": b"x"})
    open_source(tmp_path, identities=1)
    hint = "files with the ending .heic, readable after pip install pillow-heif (1)"
    assert hint in caplog.records[0].getMessage()
    with pytest.raises(DataError, match=r"is not a source: .*; readable after pip install pillow-heif"):
        open_source(tmp_path / "ann" / "2.HEIC")
