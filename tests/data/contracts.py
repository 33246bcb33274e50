"""Tests of all dataset readers. The tests of a reader inherit them and define how its files are written and read."""

import shutil
import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hypersphere.data import CATALOG, CorruptDataError, DataError, MissingDataError


class ReaderContract:
    """``make(root)`` writes files in the format of the dataset below ``root``; ``read(root)`` reads them."""

    name: str
    examples = 12

    def make(self, root: Path) -> None:
        raise AssertionError

    def read(self, root: Path):
        raise AssertionError

    def test_is_a_map_style_dataset_of_tensors(self, tmp_path):
        self.make(tmp_path)
        dataset = self.read(tmp_path)
        sample, label = dataset[len(dataset) - 1]
        assert isinstance(dataset, torch.utils.data.Dataset)
        assert torch.equal(sample, dataset.data[-1])
        assert label == dataset.labels[-1] < len(dataset.classes)
        assert dataset.labels.dtype == torch.int64

    def test_an_absent_dataset_is_named_with_its_remedy(self, tmp_path):
        with pytest.raises(
            MissingDataError, match=rf"{self.name} is not in .*; (get it with `hypersphere data get {self.name}`|put )"
        ):
            self.read(tmp_path)

    def test_its_own_folder_may_be_the_root(self, tmp_path):
        self.make(tmp_path)
        (folder,) = tmp_path.iterdir()
        assert torch.equal(self.read(folder).data, self.read(tmp_path).data)

    def test_reading_changes_nothing(self, tmp_path):
        self.make(tmp_path)
        before = _tree(tmp_path)
        self.read(tmp_path)
        assert _tree(tmp_path) == before

    def test_a_link_out_of_the_root_is_refused(self, tmp_path):
        self.make(tmp_path / "root")
        refused = 0
        for path in _files(tmp_path / "root"):
            shutil.move(path, tmp_path / "outside")
            path.symlink_to(tmp_path / "outside")
            try:
                self.read(tmp_path / "root")
            except CorruptDataError as error:
                assert "link out of the data root" in str(error)  # noqa: PT017  (files of the other split are not looked at)
                refused += 1
            path.unlink()
            shutil.move(tmp_path / "outside", path)
        assert refused

    def test_truncated_files_are_refused(self):
        self._damage(lambda content, draw: content[: draw(st.integers(0, len(content) - 1))], same=True)
        assert self.refused

    def test_changed_bytes_never_give_a_wrong_kind_of_data(self):
        def flip(content, draw):
            at = draw(st.integers(0, min(len(content), 4096) - 1))
            return content[:at] + bytes([content[at] ^ draw(st.integers(1, 255))]) + content[at + 1 :]

        self._damage(flip, same=False)
        assert self.refused >= 0

    def _damage(self, change, same: bool) -> None:
        """Damage one file: the reader raises an error that names a file, or returns valid data."""
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            self.make(root)
            whole, files, self.refused = self.read(root), _files(root), 0

            @settings(max_examples=self.examples)
            @given(st.data())
            def run(data):
                path = data.draw(st.sampled_from(files), label="file")
                content = path.read_bytes()
                path.write_bytes(change(content, data.draw))
                try:
                    found = self.read(root)
                    assert found.data.shape[1:] == whole.data.shape[1:]
                    assert found.data.dtype == whole.data.dtype
                    assert not same or (torch.equal(found.data, whole.data) and torch.equal(found.labels, whole.labels))
                    assert -1 <= found.labels.min() <= found.labels.max() < len(found.classes)
                except DataError as error:
                    said = str(error)
                    assert any(path.name in said for path in files)
                    assert CATALOG[self.name].remedy in said
                    self.refused += 1
                finally:
                    path.write_bytes(content)

            run()


def _files(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.is_file())


def _tree(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in _files(root)}
