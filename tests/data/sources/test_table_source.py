import pytest

from hypersphere.data import CorruptDataError, MissingDataError, PicturePreprocessing, open_source
from tests.data.files import encoded, random, write

from .contracts import PIXELS, PREPARE, SourceContract, png


def pictures(folder):
    write(folder, {f"img/{name}.png": png(name) for name in PIXELS})
    return [(f"img/{name}.png", name[0]) for name in PIXELS]


class TestCsv(SourceContract):
    def make(self, folder):
        rows = pictures(folder)
        (folder / "set.csv").write_text("label,path\n" + "".join(f"{label},{path}\n" for path, label in rows))
        return folder / "set.csv"


class TestParquet(SourceContract):
    def make(self, folder):
        arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        rows = pictures(folder)
        table = arrow.table({"path": [path for path, _ in rows], "label": [label for _, label in rows]})
        parquet.write_table(table, folder / "set.parquet")
        return str(folder / "set.parquet")

    def test_numbers_and_empty_cells(self, tmp_path):
        arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        paths = [path for path, _ in pictures(tmp_path)]
        columns = {"path": paths, "label": [10, 9, 10, 9, 9, 10], "is_query": [True, False, None, True, True, True]}
        corners = {
            "x_1": [0.0] * 5 + [None],
            "y_1": [1] * 5 + [None],
            "x_2": [2.0] * 5 + [None],
            "y_2": [3] * 5 + [None],
        }
        parquet.write_table(arrow.table({**columns, **corners}), tmp_path / "t.parquet")
        source = open_source(tmp_path / "t.parquet")
        assert source.classes == ("9", "10")
        assert [record.is_query for record in source.records] == columns["is_query"]
        assert [record.box for record in source.records] == [(0, 1, 2, 3)] * 5 + [None]

    def test_a_damaged_file(self, tmp_path):
        path = self.make(tmp_path)
        with open(path, "r+b") as file:
            file.truncate(100)
        with pytest.raises(CorruptDataError, match=r"set\.parquet is not a whole Parquet file"):
            open_source(path)


def test_all_columns(tmp_path):
    pictures(tmp_path)
    (tmp_path / "t.tsv").write_text(
        "path\tlabel\tsplit\tis_query\tis_gallery\tcategory\tx_1\ty_1\tx_2\ty_2\n"
        "img/a0.png\tann\ttrain\t\t\tyoung\t1\t2\t4\t8\n"
        "img/b0.png\tbob\tvalidation\tTrue\t0\told\t\t\t\t\n"
    )
    first, second = open_source(tmp_path / "t.tsv").records
    assert (first.split, first.is_query, first.is_gallery, first.category) == ("train", None, None, "young")
    assert first.box == (1, 2, 4, 8)
    assert (second.is_query, second.is_gallery, second.box) == (True, False, None)
    picture = open_source(tmp_path / "t.tsv").load(0, PicturePreprocessing(size=(6, 3)))
    assert picture.permute(1, 2, 0).tolist() == PIXELS["a0"][2:8, 1:4].tolist()


def test_paths_from_another_root(tmp_path):
    pictures(tmp_path / "data")
    (tmp_path / "t.csv").write_text(f"path,label\nimg/a0.png,a\n{tmp_path}/data/img/b0.png,b\n")
    source = open_source(tmp_path / "t.csv", root=tmp_path / "data")
    assert source.load(1, PREPARE).shape == (3, 8, 8)


def test_a_missing_file_is_named_with_its_row(tmp_path):
    pictures(tmp_path)
    (tmp_path / "t.csv").write_text("path,label\nimg/a0.png,a\nimg/b0.png,b\ngone.png,b\n")
    with pytest.raises(MissingDataError, match=r"t\.csv, row 4: there is no file .*gone\.png"):
        open_source(tmp_path / "t.csv")
    with pytest.warns(UserWarning, match=r"1 samples cannot be read and are left out: there is no file .*gone\.png"):
        assert len(open_source(tmp_path / "t.csv", on_error="skip")) == 2
    with pytest.raises(MissingDataError, match=r"there is no table .*none\.csv"):
        open_source(tmp_path / "none.csv")


def test_a_box_outside_the_image_names_the_file(tmp_path):
    write(tmp_path, {"a.png": encoded(random(4, 4)), "b.png": encoded(random(4, 4))})
    (tmp_path / "t.csv").write_text("path,label,x_1,y_1,x_2,y_2\na.png,a,0,0,9,9\nb.png,b,,,,\n")
    with pytest.raises(CorruptDataError, match=r"a\.png: the crop box must lie inside the image of 4×4"):
        open_source(tmp_path / "t.csv").load(0, PREPARE)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name,label\na.png,a\n", "must have the columns path and label, got name, label"),
        ("", "must have the columns path and label, got none"),
        ("path,label,x_1\na.png,a,1\n", "must have the columns all of x_1 y_1 x_2 y_2 or none"),
        ("path,label\n,a\n", "row 2: a path and a label are needed"),
        ("path,label\na.png\n", "row 2: a path and a label are needed"),
        ("path,label,is_query\na.png,a,maybe\n", "row 2: is_query must be true or false, got 'maybe'"),
        ("path,label,x_1,y_1,x_2,y_2\na.png,a,1,2,1,4\n", "row 2: x_1 y_1 x_2 y_2 must be whole numbers"),
        ("path,label,x_1,y_1,x_2,y_2\na.png,a,1,2,inf,4\n", "row 2: x_1 y_1 x_2 y_2 must be whole numbers"),
        ('path,label\n"a.png,a\n', "is not a table of comma-separated values"),
        ("path,label\n", "holds no sample"),
    ],
)
def test_refuses(tmp_path, text, message):
    write(tmp_path, {"a.png": encoded(random(4, 4))})
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(ValueError, match=message):
        open_source(tmp_path / "t.csv")


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_columns_of_other_names(tmp_path, ending):
    pictures(tmp_path)
    columns = {"file": ["img/a0.png", "img/b0.png"], "who": ["ann", "bob"], "label": ["x", "x"]}
    path = tmp_path / f"t.{ending}"
    if ending == "csv":
        path.write_text("\n".join(",".join(row) for row in [tuple(columns), *zip(*columns.values(), strict=True)]))
    else:
        arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        parquet.write_table(arrow.table(columns), path)
    source = open_source(path, images="file", labels="who")
    assert source.classes == ("ann", "bob")
    with pytest.raises(CorruptDataError, match="must have the columns path and who, got file, who, label"):
        open_source(path, labels="who")


def test_groups_come_from_the_named_column(tmp_path):
    for name in ("1.pgm", "2.pgm"):
        (tmp_path / name).write_bytes(b"P5 2 2 255 1234")
    table = tmp_path / "faces.csv"
    table.write_text("path,label,age\n1.pgm,ann,young\n2.pgm,bob,old\n")
    assert [record.category for record in open_source(table, category="age").records] == ["young", "old"]
    assert [record.category for record in open_source(table).records] == [None, None]
    with pytest.raises(CorruptDataError, match="must have the columns path and label and height, got path, label, age"):
        open_source(table, category="height")
