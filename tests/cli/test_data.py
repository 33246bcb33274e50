import json
import os

import pytest

from hypersphere.cli.main import main
from hypersphere.data import CATALOG
from tests.data.files import encoded, random, write
from tests.processes import typed
from tests.recognition.service.people import embedder
from tests.recognition.test_album import photographs


def lines(capsys):
    return {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}


def test_list_shows_what_is_present_and_how_to_get_the_rest(tmp_path, capsys, monkeypatch):
    write(tmp_path / "b" / "mnist", {"train-images-idx3-ubyte": b""})
    write(tmp_path, {"train_files.txt": b""})
    (tmp_path / "a" / "modelnet40").mkdir(parents=True)
    (tmp_path / "a" / "cifar10").symlink_to(tmp_path / "b" / "mnist")
    write(tmp_path / "b" / "mnist", {"data_batch_1": b""})
    monkeypatch.setenv("HYPERSPHERE_DATA", f"{tmp_path / 'a'}{os.pathsep}{tmp_path / 'b'}")
    assert main(["data", "list"]) == 0
    shown = lines(capsys)
    assert shown.keys() - {"data"} == CATALOG.keys()
    assert str(tmp_path / "b" / "mnist") in shown["mnist"]
    assert "absent (debian, address)" in shown["fashion_mnist"]
    assert "absent (by hand)" in shown["modelnet10"]
    assert "built in" in shown["digits"]
    assert "unusable: " in shown["cifar10"]


def test_get_prints_the_folder(tmp_path, capsys):
    write(tmp_path / "mnist", {"train-images-idx3-ubyte": b""})
    assert main(["data", "get", "mnist", "--root", str(tmp_path)]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "mnist")


def test_get_says_why_not(tmp_path, capsys):
    assert main(["data", "get", "nothing", "--root", str(tmp_path)]) == 1
    assert "hypersphere data: name must be one of digits, mnist" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["data"], ["data", "put"], ["data", "get"]])
def test_a_wrong_command_line_is_refused(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    assert "usage: hypersphere data" in capsys.readouterr().err


def test_check_prints_findings(tmp_path, capsys):
    for who, level in (("a", 10), ("b", 200)):
        write(tmp_path / who, {f"{i}.png": encoded(random(8, 8, 3, seed=level + i)) for i in range(2)})
    assert main(["data", "check", str(tmp_path)]) == 0
    assert "4 images of 2 identities: 2 images each" in capsys.readouterr().out
    assert main(["data", "check", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["images"] == 4
    assert main(["data", "check", str(tmp_path / "nothing")]) == 1
    assert capsys.readouterr().err.startswith("hypersphere data: there is no file or folder")


def test_check_by_an_embedder_writes_a_page_and_a_cleaned_table(tmp_path):
    photographs(tmp_path / "photos", count=10, each=4)
    for i, path in enumerate(sorted((tmp_path / "photos").glob("*.png"))):
        home = tmp_path / "photos" / f"person {1 if i == 0 else i // 4}"  # the first one is in the wrong folder
        home.mkdir(exist_ok=True)
        path.rename(home / path.name)
    embedder().save(tmp_path / "embedder.safetensors")
    options = ("--embedder", "embedder.safetensors", "-o", "review")
    done = typed("data", "check", "photos", *options, cwd=tmp_path)
    assert "1 of 40 labels may be wrong" in done.stdout
    assert "00.png: person 1" in done.stdout
    assert "looks like person 0" in done.stdout
    assert "00.png" in (tmp_path / "review" / "review.html").read_text()
    rows = (tmp_path / "review" / "cleaned.csv").read_text().splitlines()
    assert len(rows) == 1 + 39
    assert len(json.loads((tmp_path / "review" / "findings.json").read_text())["suspicions"]) == 1
    refused = typed("data", "check", "photos", "-o", "review", cwd=tmp_path, code=1)
    assert "--output needs --embedder" in refused.stderr
