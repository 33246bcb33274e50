import json
import pickle

import pytest

from hypersphere.data import CorruptDataError, DataError, MissingDataError, open_source

from .contracts import PIXELS, PREPARE, SourceContract, png

arrow = pytest.importorskip("pyarrow")
NAMES = ["c", "a", "b"]
FEATURES = {
    "image": {"_type": "Image"},
    "who": {"names": NAMES, "_type": "ClassLabel"},
    "note": {"dtype": "string", "_type": "Value"},
}


def save(folder, names, features=FEATURES, files=1, **state):
    """Write a folder like ``Dataset.save_to_disk``."""
    folder.mkdir(parents=True)
    each = -(-len(names) // files)
    data = []
    for i in range(files):
        mine = names[i * each : (i + 1) * each]
        table = arrow.table(
            {
                "image": arrow.array(
                    [{"bytes": png(n), "path": None} for n in mine],
                    arrow.struct([("bytes", arrow.binary()), ("path", arrow.string())]),
                ),
                "who": [NAMES.index(n[0]) for n in mine],
                "note": ["x"] * len(mine),
            }
        )
        data.append({"filename": f"data-{i:05d}-of-{files:05d}.arrow"})
        with (
            arrow.OSFile(str(folder / data[-1]["filename"]), "wb") as sink,
            arrow.ipc.new_stream(sink, table.schema) as writer,
        ):
            writer.write_table(table)
    (folder / "dataset_info.json").write_text(json.dumps({"features": features}))
    (folder / "state.json").write_text(
        json.dumps({"_data_files": data, "_split": "train", "_indices_files": None, **state})
    )
    return folder


class TestSavedDataset(SourceContract):
    def make(self, folder):
        return save(folder / "set", list(PIXELS), files=2)

    def test_the_name_of_its_split(self, tmp_path):
        assert open_source(self.make(tmp_path)).splits == ("train",)


class TestSavedDict(SourceContract):
    def make(self, folder):
        save(folder / "set" / "train", list(PIXELS)[:3])
        save(folder / "set" / "test", list(PIXELS)[3:])
        (folder / "set" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
        return str(folder / "set")

    def test_the_splits(self, tmp_path):
        assert len(open_source(self.make(tmp_path), split="test")) == 3


def test_columns_by_name(tmp_path):
    folder = save(tmp_path / "set", list(PIXELS))
    assert open_source(folder, images="image", labels="note", identities=1).classes == ("x",)
    with pytest.raises(DataError, match=r"there is no column 'nobody' among image, who, note"):
        open_source(folder, labels="nobody")


def test_errors_describe_the_problem(tmp_path):
    plain = {"picture": {"_type": "Value"}, "who": FEATURES["who"]}
    with pytest.raises(DataError, match="say which column holds the images, images=NAME, among picture, who"):
        open_source(save(tmp_path / "1", list(PIXELS), plain))
    with pytest.raises(DataError, match=r"call flatten_indices\(\) before saving"):
        open_source(save(tmp_path / "2", list(PIXELS), _indices_files=[{"filename": "i.arrow"}]))
    folder = save(tmp_path / "3", list(PIXELS))
    file = next(folder.glob("*.arrow"))
    file.write_bytes(file.read_bytes()[:300])
    with pytest.raises(CorruptDataError, match="3 is not a whole saved dataset"):
        open_source(folder)
    file.unlink()
    with pytest.raises(CorruptDataError, match="is not a whole saved dataset: FileNotFoundError"):
        open_source(folder)
    (folder / "state.json").write_text("{")
    with pytest.raises(CorruptDataError, match=r"state\.json is not JSON"):
        open_source(folder)
    (tmp_path / "4").mkdir()
    (tmp_path / "4" / "dataset_dict.json").write_text('{"splits": ["train"]}')
    with pytest.raises(MissingDataError, match=r"there is no file .*dataset_info\.json"):
        open_source(tmp_path / "4")


def test_rows_that_are_no_images(tmp_path):
    folder = save(tmp_path / "set", list(PIXELS))
    source = open_source(folder, images="note", identities=1)
    with pytest.raises(CorruptDataError, match="the image must be bytes or a path"):
        source.load(0, PREPARE)
    assert not pickle.loads(pickle.dumps(source))._tables
