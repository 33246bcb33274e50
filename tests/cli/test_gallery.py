import numpy as np
import pytest
from PIL import Image

from hypersphere.cli.main import main
from hypersphere.recognition import Gallery, load_model, save_model


def picture(path, person, shot):
    """Four people, told apart by where they are bright; shots differ by noise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(10 * person + shot).normal(40, 5, (12, 12))
    pixels[(person // 2) * 6 : (person // 2) * 6 + 6, (person % 2) * 6 : (person % 2) * 6 + 6] += 150
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(path)
    return str(path)


@pytest.fixture
def files(models, tmp_path):
    options = {"constructor": "tiny", "arguments": {"dim": 16}, "preprocessing": {"size": (12, 12), "channels": 1}}
    save_model(models.tiny(dim=16, seed=1), tmp_path / "model", **options)
    save_model(models.tiny(dim=16, seed=2), tmp_path / "other", **options)
    for i, name in enumerate(["ada", "bob", "cem", "dia"]):
        for shot in range(4):
            picture(tmp_path / ("people" if i < 3 else "strangers") / name / f"{shot}.png", i, shot)
    return tmp_path


def run(files, capsys, action, *arguments, model="model", code=0):
    where = [str(files / "people.db"), *([str(files / model)] if model else [])]
    assert main(["gallery", action, *where, *map(str, arguments)]) == code
    out, error = capsys.readouterr()
    return error if code else out


def test_a_gallery_from_folders_to_answers(files, capsys):
    assert run(files, capsys, "enrol", files / "people") == "".join(
        f"enrolled {n} with 4 templates\n" for n in ("ada", "bob", "cem")
    )
    assert run(files, capsys, "list", model=None) == "ada\t4\nbob\t4\ncem\t4\n"
    assert "for a false accept rate of 0.0209 on 66 pairs" in run(
        files, capsys, "calibrate", files / "people", "--far", "0.0209"
    )
    probe = picture(files / "probe.png", 1, 99)
    stranger = picture(files / "stranger.png", 3, 99)
    lines = [line.split("\t") for line in run(files, capsys, "identify", probe, stranger, "-k", "2").splitlines()]
    assert [line[:2] for line in lines] == [[probe, "bob"], [stranger, "unknown"]]
    assert lines[0][2].startswith("bob ")
    assert len(lines[0]) == 4
    assert run(files, capsys, "verify", "bob", probe).split("\t")[1] == "accepted"
    assert run(files, capsys, "verify", "ada", probe).split("\t")[1] == "rejected"
    assert run(files, capsys, "verify", "ada", probe, "--threshold", "-1").split("\t")[1] == "accepted"
    assert run(files, capsys, "remove", "bob", model=None) == "removed bob with 4 templates\n"
    assert run(files, capsys, "list", model=None) == "ada\t4\ncem\t4\n"
    assert run(files, capsys, "identify", probe).split("\t")[1] == "unknown"


def test_a_named_identity_and_what_is_stored(files, capsys):
    image = files / "strangers" / "dia" / "0.png"
    assert run(files, capsys, "enrol", image, "--identity", "Dia D.") == "enrolled Dia D. with 1 template\n"
    with Gallery(files / "people.db") as gallery:
        assert gallery.list() == {"Dia D.": 1}
        assert gallery.fingerprint == load_model(files / "model").fingerprint
        assert gallery._db.execute("SELECT source FROM templates").fetchall() == [(str(image),)]


@pytest.mark.parametrize(
    ("action", "arguments", "model", "message"),
    [
        ("identify", ["people"], "model", "threshold must be given, or the gallery calibrated"),
        ("identify", ["people", "--threshold", "0.5"], "other", "holds features of model"),
        ("enrol", ["people"], "other", "holds features of model"),
        ("verify", ["zoe", "people", "--threshold", "0.5"], "model", "identity 'zoe' is not in the gallery"),
        ("calibrate", ["people"], "model", "needs at least 1000 different pairs"),
        ("remove", ["zoe"], None, "identity 'zoe' is not in the gallery"),
    ],
)
def test_a_user_error_is_one_line(files, capsys, monkeypatch, action, arguments, model, message):
    monkeypatch.chdir(files)
    run(files, capsys, "enrol", files / "people" / "ada")
    error = run(files, capsys, action, *arguments, model=model, code=1)
    assert error.startswith("hypersphere gallery: ")
    assert message in error
    assert error.count("\n") == 1
    assert run(files, capsys, "list", model=None) == "ada\t4\n"


@pytest.mark.parametrize(
    ("action", "arguments", "model"), [("list", [], None), ("remove", ["ada"], None), ("identify", ["people"], "model")]
)
def test_only_enrol_makes_a_gallery(files, capsys, monkeypatch, action, arguments, model):
    monkeypatch.chdir(files)
    assert "there is no gallery at" in run(files, capsys, action, *arguments, model=model, code=1)
    assert not (files / "people.db").exists()


def test_an_action_is_required(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["gallery"])
    assert stop.value.code == 2
    assert "ACTION" in capsys.readouterr().err
