import io
import stat
import tarfile
import tempfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hypersphere.data import CorruptDataError, archive
from hypersphere.data.archive import check_inside, extract, walk

from .files import tar, write

FILES = {"a/one.txt": b"1" * 700, "a/b/two.bin": bytes(range(256)) * 9, "three": b""}
MODES = {"tar": "w:", "tgz": "w:gz", "tar.bz2": "w:bz2", "tar.xz": "w:xz"}


def make(path: Path, files: dict[str, bytes] = FILES) -> Path:
    if path.suffix != ".zip":
        return tar(path, files, MODES[path.name.partition(".")[2]])
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def tree(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*")}


@pytest.mark.parametrize("name", ["x.tar", "x.tgz", "x.tar.bz2", "x.tar.xz", "x.zip"])
class TestArchives:
    def test_walk_returns_the_packed_files(self, tmp_path, name):
        assert dict(walk(make(tmp_path / name))) == FILES
        assert dict(walk(make(tmp_path / name), lambda name: name == "three")) == {"three": b""}

    def test_extract_writes_the_packed_files(self, tmp_path, name):
        written = extract(make(tmp_path / name), tmp_path / "out")
        assert dict(walk(tmp_path / "out")) == FILES
        assert sorted(str(path.relative_to(tmp_path / "out")) for path in written) == sorted(FILES)

    def test_extract_renames_and_skips_members(self, tmp_path, name):
        extract(make(tmp_path / name), tmp_path / "out", lambda name: name.rpartition("/")[2] if "a/" in name else None)
        assert tree(tmp_path / "out") == {"one.txt", "two.bin"}

    @pytest.mark.parametrize(
        "bad", ["../escaped", "/escaped", "a/../../escaped", "..\\escaped", "C:\\escaped", "C:escaped", "a\\..\\..\\b"]
    )
    def test_names_outside_the_folder_are_refused_and_nothing_is_written(self, tmp_path, name, bad):
        make(tmp_path / name, {"fine": b"1", bad: b"2"})
        before = tree(tmp_path)
        with pytest.raises(CorruptDataError, match="relative names that stay inside the archive"):
            extract(tmp_path / name, tmp_path / "deep" / "out")
        assert tree(tmp_path) == before | {"deep"}

    def test_new_names_outside_the_folder_are_refused(self, tmp_path, name):
        with pytest.raises(CorruptDataError, match="relative names"):
            extract(make(tmp_path / name), tmp_path / "out", lambda name: "../" + name)
        assert tree(tmp_path) == {name}

    def test_large_members_are_refused(self, tmp_path, name):
        with pytest.raises(CorruptDataError, match="700 bytes, expected files of at most 600"):
            list(walk(make(tmp_path / name), limit=600))

    def test_too_many_empty_files_are_refused(self, tmp_path, name, monkeypatch):
        path = make(tmp_path / name, {f"{i}": bytes(1000) for i in range(50)})
        for limit, value in (("MAX_TOTAL_BYTES", 20_000), ("MAX_FILES", 10)):
            with monkeypatch.context() as patch:
                patch.setattr(archive, limit, value)
                with pytest.raises(CorruptDataError, match=r"more than \d+ bytes or \d+ files"):
                    list(walk(path))
        assert len(list(walk(path))) == 50

    def test_every_truncation_is_detected(self, name):
        with tempfile.TemporaryDirectory() as folder:
            path = make(Path(folder) / name)
            content = path.read_bytes()
            end = (
                len(content) if name != "x.tar" else len(content.rstrip(b"\0")) // 512 * 512 + 1023
            )  # the end mark is complete from here on

            @settings(max_examples=40)
            @given(st.integers(0, end - 1))
            @example(end - 1)
            def run(cut):
                path.write_bytes(content[:cut])
                with pytest.raises(CorruptDataError, match=r"found .*, expected a whole tar"):
                    dict(walk(path))

            run()
            assert path.stat().st_size < len(content)

    def test_changed_bytes_are_detected_or_harmless(self, name):
        with tempfile.TemporaryDirectory() as folder:
            path = make(Path(folder) / name)
            content = path.read_bytes()

            @settings(max_examples=60)
            @given(st.integers(0, len(content) - 1), st.integers(1, 255))
            def run(at, bits):
                path.write_bytes(content[:at] + bytes([content[at] ^ bits]) + content[at + 1 :])
                try:
                    found = dict(walk(path))
                except CorruptDataError:
                    return
                if name != "x.tar":  # a plain tar has no checksum of its contents
                    assert list(found.values()) == list(FILES.values())

            run()
            assert path.read_bytes() != content


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_in_a_tar_are_refused(tmp_path, kind):
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        info = tarfile.TarInfo("innocent")
        info.type, info.linkname = kind, "/etc/passwd"
        archive.addfile(info)
    with pytest.raises(CorruptDataError, match="the link or device file 'innocent', expected regular files"):
        extract(tmp_path / "x.tar", tmp_path / "out")
    assert tree(tmp_path) == {"x.tar"}


def test_links_in_a_zip_are_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        info = zipfile.ZipInfo("innocent")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(info, "/etc/passwd")
    with pytest.raises(CorruptDataError, match="the link or device file 'innocent'"):
        extract(tmp_path / "x.zip", tmp_path / "out")
    assert tree(tmp_path) == {"x.zip"}


def test_folders_in_archives_are_skipped(tmp_path):
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        for name in (".", "a"):
            info = tarfile.TarInfo(name)
            info.type = tarfile.DIRTYPE
            archive.addfile(info)
        info = tarfile.TarInfo("./a/one")
        info.size = 1
        archive.addfile(info, io.BytesIO(b"1"))
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("a/", b"")
        archive.writestr("a/one", b"1")
    assert list(walk(tmp_path / "x.tar")) == list(walk(tmp_path / "x.zip")) == [("a/one", b"1")]


def test_an_encrypted_zip_is_an_error(tmp_path):
    content = make(tmp_path / "x.zip").read_bytes()
    local, central = content.index(b"PK\3\4"), content.index(b"PK\1\2")
    content = bytearray(content)
    content[local + 6] |= 1
    content[central + 8] |= 1
    (tmp_path / "x.zip").write_bytes(content)
    with pytest.raises(CorruptDataError, match="damaged archive"):
        list(walk(tmp_path / "x.zip"))


def test_an_interrupted_extraction_leaves_nothing(tmp_path, monkeypatch):
    make(tmp_path / "x.tar.xz")
    real = Path.write_bytes

    def interrupted(path, content):
        if path.name == "two.bin":
            raise KeyboardInterrupt
        return real(path, content)

    monkeypatch.setattr(Path, "write_bytes", interrupted)
    with pytest.raises(KeyboardInterrupt):
        extract(tmp_path / "x.tar.xz", tmp_path / "out")
    assert tree(tmp_path) == {"x.tar.xz"}


def test_extract_refuses_an_existing_folder(tmp_path):
    write(tmp_path / "out", {"mine": b"1"})
    with pytest.raises(ValueError, match="target must not exist yet"):
        extract(make(tmp_path / "x.zip"), tmp_path / "out")
    assert tree(tmp_path / "out") == {"mine"}


def test_a_folder_is_walked_in_sorted_order(tmp_path):
    write(tmp_path, dict.fromkeys(["b", "a/2", "a/10", "c/x"], b""))
    assert [name for name, _ in walk(tmp_path)] == ["a/10", "a/2", "b", "c/x"]


def test_links_in_a_folder_must_stay_inside(tmp_path):
    write(tmp_path / "root", {"a": b"1"})
    write(tmp_path, {"outside/secret": b"2"})
    (tmp_path / "root" / "link").symlink_to("a")
    assert dict(walk(tmp_path / "root")) == {"a": b"1", "link": b"1"}
    (tmp_path / "root" / "loop").symlink_to(".")
    with pytest.raises(CorruptDataError, match="a link to a folder or to nothing"):
        list(walk(tmp_path / "root"))
    (tmp_path / "root" / "loop").unlink()
    for target in ("../outside/secret", "../outside", str(tmp_path / "outside" / "secret")):
        (tmp_path / "root" / "bad").symlink_to(target)
        with pytest.raises(CorruptDataError, match=r"a link out of the data root, to .*outside"):
            list(walk(tmp_path / "root"))
        (tmp_path / "root" / "bad").unlink()


def test_check_inside_follows_every_link(tmp_path):
    (tmp_path / "root" / "deep").mkdir(parents=True)
    (tmp_path / "root" / "deep" / "up").symlink_to("../..")
    assert check_inside(tmp_path / "root" / "deep", tmp_path / "root") == tmp_path / "root" / "deep"
    with pytest.raises(CorruptDataError, match="link out of the data root"):
        check_inside(tmp_path / "root" / "deep" / "up" / "x", tmp_path / "root")
