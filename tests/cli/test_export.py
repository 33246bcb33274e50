import json

import pytest

import hypersphere as hs
from hypersphere.cli.export import find_run_report
from hypersphere.cli.main import main
from tests.recognition.drawn import draw_folder, small_embedder


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    small_embedder().save(folder / "one.safetensors")
    draw_folder(folder / "people", 3, 3)
    return folder


@pytest.mark.untyped
def test_an_onnx_graph_is_compared_on_the_users_images(files, tmp_path, capsys):
    words = [
        "export",
        str(files / "one.safetensors"),
        "--onnx",
        str(tmp_path / "m.onnx"),
        "--images",
        str(files / "people"),
    ]
    assert main(words) == 0
    assert "features of 9 images" in capsys.readouterr().out
    assert json.loads((tmp_path / "m.onnx.json").read_text())["fingerprint"] == small_embedder().fingerprint


def test_a_hub_folder_with_the_reports_numbers(files, tmp_path, capsys):
    assert main(["evaluate", str(files / "one.safetensors"), str(files / "people"), "-o", str(tmp_path / "out")]) == 0
    words = ["export", str(files / "one.safetensors"), "--hub", str(tmp_path / "hub"), "--licence", "mit"]
    assert main([*words, "--report", str(tmp_path / "out" / "report.json"), "--title", "People"]) == 0
    assert hs.load(tmp_path / "hub").fingerprint == small_embedder().fingerprint
    card = (tmp_path / "hub" / "README.md").read_text()
    assert "# People" in card
    assert "| rank-1 |" in card


def test_pushed_only_when_asked(files, tmp_path, monkeypatch, capsys):
    pushed = []
    monkeypatch.setattr("hypersphere.recognition.push_hub_folder", lambda *a, **k: pushed.append((a, k)) or "there")
    words = ["export", str(files / "one.safetensors"), "--hub", str(tmp_path / "hub"), "--licence", "mit"]
    assert main(words) == 0
    assert pushed == []
    assert main([*words, "--push", "me/mine", "--public"]) == 0
    assert pushed == [((tmp_path / "hub", "me/mine"), {"private": False})]
    assert "pushed to there" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--hub", "hub"], "--hub needs --license"),
        (["--onnx", "absent/m.onnx"], "there is no folder"),
        (["--onnx", "m.onnx", "--push", "a/b"], "--push needs --hub"),
        (["--hub", "hub", "--images", "people"], "--images needs --onnx"),
        (["--hub", "hub", "--licence", "mit", "--report", "people/person0/person0_0001.png"], "report.json"),
        (["--hub", "hub", "--licence", "mit", "--report", "absent.json"], "absent.json"),
        (["--onnx", "m.onnx", "--images", "absent"], "there is no file or folder absent"),
    ],
)
def test_a_bad_input_is_one_sentence(files, monkeypatch, capsys, words, message):
    monkeypatch.chdir(files)
    assert main(["export", "one.safetensors", *words]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert len(err.strip().splitlines()) == 1
    assert not (files / "hub").exists()
    assert not (files / "m.onnx").exists()


def test_the_report_of_a_run_is_its_own(tmp_path):
    assert find_run_report(str(tmp_path)) is None
    for name in ("embedder.safetensors", "choices.json", "report.json"):
        (tmp_path / name).touch()
    assert (
        find_run_report(str(tmp_path))
        == find_run_report(str(tmp_path / "embedder.safetensors"))
        == tmp_path / "report.json"
    )
    assert find_run_report(str(tmp_path / "other.safetensors")) is None
