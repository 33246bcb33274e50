import pytest

from hypersphere.data import DataError, open_source
from tests.data.files import encoded, random, write


def test_a_source_stays_itself(tmp_path):
    write(tmp_path, {f"{c}/1.png": encoded(random(4, 4)) for c in "ab"})
    source = open_source(tmp_path)
    assert open_source(source) is source


@pytest.mark.untyped
def test_refuses_what_is_no_source(tmp_path):
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(DataError, match=r"notes\.txt is not a source: a folder, \.csv"):
        open_source(tmp_path / "notes.txt")
    with pytest.raises(ValueError, match="a source must be a path, a dataset or a pair of arrays, got int"):
        open_source(7)


@pytest.mark.parametrize(
    ("name", "option"), [("t.csv", "depth"), ("t.npz", "root"), ("t.tar", "labels"), ("t.parquet", "images")]
)
def test_refuses_options_of_other_kinds(name, option):
    with pytest.raises(ValueError, match=f"{option} does not belong to (a table|an array set|tar shards), which takes"):
        open_source(name, **{option: "x" if option != "depth" else 1})
