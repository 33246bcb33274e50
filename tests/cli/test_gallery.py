import json
import uuid

import numpy as np
import pytest
import torch
from PIL import Image

from hypersphere.cli.main import main
from hypersphere.config import Call
from hypersphere.data import PicturePreprocessing
from hypersphere.models import mlp
from hypersphere.recognition import Embedder, Gallery
from hypersphere.recognition.stores import sqlite_database


def picture(path, person, shot):
    """Write a picture of one of four people. People differ in their bright quarter, shots in their noise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(10 * person + shot).normal(40, 5, (12, 12))
    pixels[(person // 2) * 6 : (person // 2) * 6 + 6, (person % 2) * 6 : (person % 2) * 6 + 6] += 150
    pixels = 255 - pixels if person == 3 else pixels  # person 3, the stranger, resembles nobody
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(path)
    return str(path)


@pytest.fixture
def files(tmp_path):
    call = Call(mlp, {"num_classes": None, "input_size": 12, "hidden": (128,), "activation": "none"})
    for name, seed in (("model", 1), ("other", 2)):
        torch.manual_seed(seed)
        Embedder(call.build(), PicturePreprocessing(size=(12, 12), channels=1), call).save(tmp_path / name)
    for i, name in enumerate(["ada", "bob", "cem", "dia"]):
        for shot in range(4):
            picture(tmp_path / ("people" if i < 3 else "strangers") / name / f"{shot}.png", i, shot)
    return tmp_path


def many_strangers(files):
    """Write two pictures each of twelve strangers, and return their folder."""
    for person in range(12):
        for shot in range(2):
            picture(files / "many" / f"stranger {person}" / f"{shot}.png", 3, 2 * person + shot)
    return files / "many"


def run(files, capsys, action, *arguments, model="model", code=0, where=None):
    place = [where or str(files / "people.db"), *([str(files / model)] if model else [])]
    assert main(["gallery", action, *place, *map(str, arguments)]) == code
    out, error = capsys.readouterr()
    return error if code else out


def from_folders_to_answers(files, capsys, where):
    """Run the commands of a user, from enrollment to removal."""
    assert run(files, capsys, "enrol", files / "people", where=where) == "".join(
        f"enrolled {n} with 4 templates\n" for n in ("ada", "bob", "cem")
    )
    assert run(files, capsys, "list", model=None, where=where) == "ada\t4\nbob\t4\ncem\t4\n"
    assert "for a false accept rate of 0.0209; measured 2.08% [0.37%, 10.90%] on 66 pairs" in run(
        files, capsys, "calibrate", files / "people", "--far", "0.0209", where=where
    )
    probe = picture(files / "probe.png", 1, 99)
    stranger = picture(files / "stranger.png", 3, 99)
    answer = run(files, capsys, "identify", probe, stranger, "-k", "2", where=where)
    lines = [line.split("\t") for line in answer.splitlines()]
    assert [line[:2] for line in lines] == [[probe, "bob"], [stranger, "unknown"]]
    score, probability, box, *candidates = lines[0][2:]
    assert 0.5 < float(probability) < 1
    assert box == "-"  # the whole picture was used, without face detection
    assert candidates[0] == f"bob {score}"
    assert len(candidates) == 2
    reranked = run(files, capsys, "identify", probe, stranger, "--rerank", where=where)
    assert [line.split("\t")[1] for line in reranked.splitlines()] == ["bob", "unknown"]
    assert run(files, capsys, "verify", "bob", probe, where=where).split("\t")[1] == "accepted"
    assert run(files, capsys, "verify", "ada", probe, where=where).split("\t")[1] == "rejected"
    assert run(files, capsys, "verify", "ada", probe, "--threshold", "-1", where=where).split("\t")[1] == "accepted"
    run(files, capsys, "enrol", files / "people", where=where)
    assert run(files, capsys, "check", model=None, where=where) == "all is well: 3 identities with 12 templates\n"
    assert run(files, capsys, "backup", files / "copy.db", model=None, where=where).startswith("copied 3 identities to")
    assert run(files, capsys, "remove", "bob", model=None, where=where) == "removed bob with 4 templates\n"
    assert run(files, capsys, "list", model=None, where=where) == "ada\t4\ncem\t4\n"
    assert run(files, capsys, "identify", probe, where=where).split("\t")[1] == "unknown"
    assert run(files, capsys, "list", model=None, where=str(files / "copy.db")) == "ada\t4\nbob\t4\ncem\t4\n"


def test_a_gallery_from_folders_to_answers(files, capsys):
    from_folders_to_answers(files, capsys, str(files / "people.db"))


def test_a_gallery_on_a_server(files, capsys, server):
    where = f"{server}#g{uuid.uuid4().hex}"
    from_folders_to_answers(files, capsys, where)
    said = run(files, capsys, "index", "-k", "3", "--probes", "8", model=None, where=where)
    assert said == "the index finds 100.0% of the 3 nearest templates, measured with 8 of them\n"
    found = run(files, capsys, "identify", files / "people" / "cem", "--approximate", where=where)
    assert [line.split("\t")[1] for line in found.splitlines()] == ["cem"] * 4


def test_answers_as_json(files, capsys):
    run(files, capsys, "enrol", files / "people")
    assert json.loads(run(files, capsys, "list", "--json", model=None)) == {"ada": 4, "bob": 4, "cem": 4}
    found = json.loads(run(files, capsys, "calibrate", files / "people", "--far", "0.0209", "--json"))
    assert found["by"] == "far"
    probe = picture(files / "probe.png", 1, 99)
    answer = json.loads(run(files, capsys, "identify", probe, "-k", "2", "--json"))
    assert (answer["file"], answer["identity"]) == (probe, "bob")
    assert [c["accepted"] for c in answer["candidates"]] == [True, False]
    answer = json.loads(run(files, capsys, "verify", "bob", probe, "--json"))
    assert (answer["identity"], answer["accepted"]) == ("bob", True)
    assert json.loads(run(files, capsys, "check", "--json", model=None)) == {"ok": True, "problems": []}


def test_calibration_by_strangers(files, capsys):
    run(files, capsys, "enrol", files / "people")
    strangers = many_strangers(files)
    said = run(files, capsys, "calibrate", strangers, "--fpir", "0.25")
    assert "for a false positive identification rate of 0.25; measured " in said
    assert said.endswith("on 24 pictures of 12 people\n")
    low, high = json.loads(run(files, capsys, "calibrate", strangers, "--fpir", "0.25", "--json"))["interval"]
    assert 0 <= low < high <= 0.25
    found = run(files, capsys, "identify", strangers)
    assert sum(line.split("\t")[1] != "unknown" for line in found.splitlines()) <= 6
    few = run(files, capsys, "calibrate", files / "strangers", "--fpir", "0.25", code=1)
    assert "fpir=0.25 needs strangers of at least 11 people" in few
    assert "got 1 people" in few
    assert "needs strangers, but some of them are enrolled: ada" in run(
        files, capsys, "calibrate", files / "people", "--fpir", "0.1", code=1
    )


def test_a_rate_that_lets_strangers_in_is_said_on_stderr(files, capsys):
    run(files, capsys, "enrol", files / "people")
    places = [str(files / name) for name in ("people.db", "model", "people")]
    assert main(["gallery", "calibrate", *places, "--far", "0.1"]) == 0
    out, error = capsys.readouterr()
    assert out.startswith("threshold ")
    assert "a gallery of 3 identities accepts about" in error


def test_a_bad_image_is_one_error_or_skipped(files, capsys):
    bad = files / "people" / "ada" / "bad.png"
    bad.write_bytes(b"not an image")
    error = run(files, capsys, "enrol", files / "people", code=1)
    assert "bad.png" in error
    assert error.count("\n") == 1
    assert "there is no gallery at" in run(files, capsys, "list", model=None, code=1)
    places = [str(files / name) for name in ("people.db", "model", "people")]
    assert main(["gallery", "enrol", *places, "--skip-errors"]) == 0
    out, error = capsys.readouterr()
    assert out.splitlines()[0] == "enrolled ada with 4 templates"
    assert error.startswith(f"skipped {bad}: ")
    assert error.count("\n") == 1


def test_damage_is_found(files, capsys):
    run(files, capsys, "enrol", files / "people")
    path = files / "people.db.features-0"
    content = bytearray(path.read_bytes())
    content[32 + 40] ^= 1
    path.write_bytes(content)
    assert main(["gallery", "check", str(files / "people.db")]) == 1
    assert capsys.readouterr().out == "people.db.features-0: template 1 does not match its checksum\n"
    error = run(files, capsys, "identify", files / "people", "--threshold", "0.5", code=1)
    assert "do not match their checksums" in error


def test_a_named_identity_and_what_is_stored(files, capsys):
    image = files / "strangers" / "dia" / "0.png"
    assert run(files, capsys, "enrol", image, "--identity", "Dia D.") == "enrolled Dia D. with 1 template\n"
    with Gallery(files / "people.db") as gallery:
        assert gallery.list() == {"Dia D.": 1}
        assert gallery.fingerprint == Embedder.load(files / "model").fingerprint
        assert gallery._store._db.execute("SELECT source FROM templates").fetchall() == [(str(image),)]


@pytest.mark.parametrize(
    ("action", "arguments", "model", "message"),
    [
        ("identify", ["people"], "model", "the gallery has no threshold for this: calibrate it"),
        ("identify", ["people", "--threshold", "0.5"], "other", "holds features of model"),
        (
            "identify",
            ["people", "--threshold", "0.5", "--approximate"],
            "model",
            "a gallery in a file is searched exactly",
        ),
        ("enrol", ["people"], "other", "holds features of model"),
        ("verify", ["zoe", "people", "--threshold", "0.5"], "model", "identity 'zoe' is not in the gallery"),
        ("calibrate", ["people"], "model", "needs at least 1000 different pairs"),
        ("remove", ["zoe"], None, "identity 'zoe' is not in the gallery"),
        ("backup", ["model"], None, "there is a file at model already"),
        ("index", [], None, "a gallery in a file is searched exactly"),
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
    ("action", "arguments", "model"),
    [
        ("list", [], None),
        ("check", [], None),
        ("backup", ["copy.db"], None),
        ("remove", ["ada"], None),
        ("identify", ["people"], "model"),
    ],
)
def test_only_enrol_makes_a_gallery(files, capsys, monkeypatch, action, arguments, model):
    monkeypatch.chdir(files)
    assert "there is no gallery at" in run(files, capsys, action, *arguments, model=model, code=1)
    assert not list(files.glob("people.db*"))


def test_an_action_is_required(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["gallery"])
    assert stop.value.code == 2
    assert "ACTION" in capsys.readouterr().err


def test_a_first_enrolment_that_fails_leaves_no_gallery(files, capsys):
    (files / "bad.png").write_bytes(b"not a picture")
    assert "bad.png" in run(files, capsys, "enrol", files / "bad.png", code=1)
    assert not [path for path in files.iterdir() if path.name.startswith("people.db")]


def test_identities_are_the_first_level_as_for_fit(files, capsys):
    for i, name in enumerate(["ann", "bob"]):
        for year in ("2020", "2021"):
            picture(files / "nested" / name / year / "0.png", i, int(year))
    said = run(files, capsys, "enroll", files / "nested")
    assert said == "enrolled ann with 2 templates\nenrolled bob with 2 templates\n"


def test_a_single_file_is_nobodys_without_a_name(files, capsys):
    error = run(files, capsys, "enrol", files / "people" / "ada" / "0.png", code=1)
    assert "is a single file: give --identity" in error
    assert not list(files.glob("people.db*"))


@pytest.mark.parametrize("ending", [".pbm", ".jp2", ".jpe", ".mpo"])
def test_formats_that_fit_trains_on_are_enrolled_and_identified(files, capsys, ending):
    image = Image.open(picture(files / "one.png", 1, 0)).convert("1" if ending == ".pbm" else "L")
    for name in ("eve", "fay"):
        (files / "others" / name).mkdir(parents=True)
        image.save(files / "others" / name / f"0{ending}")
    assert run(files, capsys, "enrol", files / "others").count("with 1 template\n") == 2
    found = run(files, capsys, "identify", files / "others", "--threshold", "0.5")
    assert len(found.splitlines()) == 2


def test_features_that_are_refused_leave_no_gallery(files, capsys):
    Image.new("L", (12, 12), 0).save(files / "black.png")
    call = Call(mlp, {"num_classes": None, "input_size": 12, "hidden": (8,), "activation": "none"})
    network = call.build()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
    Embedder(network, PicturePreprocessing(size=(12, 12), channels=1), call).save(files / "zero")
    error = run(files, capsys, "enrol", files / "black.png", "--identity", "eve", model="zero", code=1)
    assert "a row of zeros" in error
    assert not list(files.glob("people.db*"))


def test_one_picture_is_identified_in_few_transactions(files, capsys, monkeypatch):
    run(files, capsys, "enrol", files / "people")
    run(files, capsys, "calibrate", files / "people", "--far", "0.0209")
    counts = {"opened": 0, "begun": 0}
    opened, connect = Gallery.__init__, sqlite_database.sqlite3.connect

    def count_opened(self, *args, **kwargs):
        counts["opened"] += 1
        opened(self, *args, **kwargs)

    def count_begun(*args, **kwargs):
        db = connect(*args, **kwargs)
        db.set_trace_callback(lambda text: counts.update(begun=counts["begun"] + text.startswith("BEGIN")))
        return db

    monkeypatch.setattr(Gallery, "__init__", count_opened)
    monkeypatch.setattr(sqlite_database.sqlite3, "connect", count_begun)
    run(files, capsys, "identify", files / "people" / "ada" / "0.png")
    assert counts["opened"] == 1
    assert counts["begun"] <= 4, "two to open it, one for the settings, one for the search"


def test_verify_needs_a_rate_of_pairs(files, capsys):
    run(files, capsys, "enrol", files / "people")
    run(files, capsys, "calibrate", many_strangers(files), "--fpir", "0.25")
    probe = str(files / "people" / "ada" / "0.png")
    assert "calibrate it with far and pairs" in run(files, capsys, "verify", "ada", probe, code=1)
    run(files, capsys, "calibrate", files / "people", "--far", "0.0209")
    with Gallery(files / "people.db") as gallery:
        assert set(gallery.calibrations) == {"far", "fpir"}
    assert run(files, capsys, "verify", "ada", probe).split("\t")[1] == "accepted"


def test_a_run_folder_or_a_name_is_an_embedder_too(files, capsys):
    (files / "run").mkdir()
    (files / "model").rename(files / "run" / "embedder.safetensors")
    run(files, capsys, "enrol", files / "people", model="run")
    assert main(["gallery", "enrol", str(files / "characters.db"), "characters", str(files / "people")]) == 0
