"""Galleries of faces with a catalog model: pictures with several faces or none, and strangers rejected."""

import json

import numpy as np
import pytest
from PIL import Image, ImageFilter

from hypersphere.cli.main import main
from tests.data.photographs import extract_people, find_network
from tests.processes import typed


@pytest.fixture(scope="module")
def lfw(tmp_path_factory):
    """Return folders with 24 photographs of LFW, including four of Aaron_Peirsol and two of Aaron_Sorkin."""
    find_network("yunet"), find_network("sface")
    folder = tmp_path_factory.mktemp("lfw")
    extract_people(folder, pictures=24)
    return folder


@pytest.fixture
def party(lfw, tmp_path):
    """Return a folder with one picture each of two members, and a photograph of a member beside a stranger."""
    for name in ("Aaron_Peirsol", "Aaron_Sorkin"):
        (tmp_path / "members" / name).mkdir(parents=True)
        source = lfw / name / f"{name}_0001.jpg"
        (tmp_path / "members" / name / source.name).write_bytes(source.read_bytes())
    member, stranger = (
        np.asarray(Image.open(lfw / name / f"{name}_000{number}.jpg"))
        for name, number in (("Aaron_Peirsol", 2), ("Aaron_Eckhart", 1))
    )
    Image.fromarray(np.concatenate([member, stranger], 1)).save(tmp_path / "party.png")
    Image.new("RGB", (96, 96), (90, 120, 90)).save(tmp_path / "wall.png")
    return tmp_path


def run(capsys, *arguments, code=0):
    assert main(["gallery", *map(str, arguments)]) == code
    return capsys.readouterr()


def test_one_line_per_face(party, capsys):
    out, _ = run(capsys, "enrol", party / "known.db", "sface", party / "members")
    assert out.startswith("enrolled Aaron_Peirsol with 1 template\n")
    where = (party / "known.db", "sface", party / "party.png")
    out, _ = run(capsys, "identify", *where, "--threshold", "0.363")
    lines = [line.split("\t") for line in out.splitlines()]
    assert [line[0] for line in lines] == [str(party / "party.png")] * 2
    boxes = [[int(value) for value in line[4].split(",")] for line in lines]
    names = {line[1]: box for line, box in zip(lines, boxes, strict=True)}
    assert set(names) == {"Aaron_Peirsol", "unknown"}
    assert names["Aaron_Peirsol"][0] < names["Aaron_Peirsol"][2] < 128 + 20 < names["unknown"][2]
    assert all(line[3] == "-" for line in lines)  # no probability without calibration

    out, _ = run(capsys, "identify", *where, "--threshold", "0.363", "--json", "--choose", "largest")
    (answer,) = map(json.loads, out.splitlines())
    assert set(answer) >= {"file", "identity", "score", "probability", "candidates", "box", "landmarks", "quality"}
    assert answer["detector_score"] > 0.6
    assert set(answer["quality"]) >= {"size", "sharpness", "yaw", "roll", "brightness"}


def test_a_picture_without_a_face_is_reported_and_never_embedded(party, capsys):
    run(capsys, "enrol", party / "known.db", "sface", party / "members")
    where = (party / "known.db", "sface")
    out, error = run(capsys, "identify", *where, party / "wall.png", party / "party.png", "--threshold", "0.4")
    assert len(out.splitlines()) == 2
    assert f"skipped {party / 'wall.png'}: no face was found" in error
    out, error = run(capsys, "identify", *where, party / "wall.png", "--threshold", "0.4", code=1)
    assert out == ""
    assert f"no face was found in {party / 'wall.png'}" in error
    (party / "members" / "wall").mkdir()
    (party / "wall.png").rename(party / "members" / "wall" / "wall.png")
    _, error = run(capsys, "enrol", party / "second.db", "sface", party / "members", code=1)
    assert "wall.png: no face was found" in error
    assert not (party / "second.db").exists()
    out, error = run(capsys, "enrol", party / "second.db", "sface", party / "members", "--skip-errors")
    assert "wall.png: no face was found" in error
    assert out.count("enrolled") == 2


def test_the_face_is_chosen_as_told(party, capsys):
    people = party / "party.png", "--identity", "both"
    _, error = run(capsys, "enrol", party / "a.db", "sface", *people, "--choose", "refuse", code=1)
    assert "2 faces were found" in error
    _, error = run(capsys, "enrol", party / "a.db", "sface", *people, "--choose", "all", code=1)
    assert "--choose all is for identify only" in error
    out, _ = run(capsys, "enrol", party / "a.db", "sface", *people, "--choose", "central")
    assert out == "enrolled both with 1 template\n"


def test_the_quality_gate_warns_or_refuses(party, capsys):
    path = party / "members" / "Aaron_Sorkin" / "Aaron_Sorkin_0001.jpg"
    Image.open(path).filter(ImageFilter.GaussianBlur(4)).save(path)
    members = "sface", party / "members"
    out, error = run(capsys, "enrol", party / "a.db", *members)
    assert out.count("enrolled") == 2
    assert f"low quality: {path}: the face is blurred" in error
    out, error = run(capsys, "enrol", party / "b.db", *members, "--quality", "refuse")
    assert out.count("enrolled") == 1
    assert f"refused: {path}" in error
    _, error = run(capsys, "enrol", party / "c.db", *members, "--quality", "off")
    assert error == ""
    _, error = run(capsys, "enrol", party / "d.db", "sface", path, "--identity", "x", "--quality", "refuse", code=1)
    assert "--quality refuse leaves no face to enroll" in error


def test_a_license_must_be_accepted_by_name(party, capsys):
    _, error = run(capsys, "enrol", party / "a.db", "w600k-mbf", party / "members", code=1)
    assert "--accept-licence w600k-mbf" in error


@pytest.mark.slow
def test_from_the_catalogue_to_strangers_rejected_at_the_calibrated_rate(tmp_path):
    """Run the commands of the README with 150 members, 320 strangers for calibration and 320 others for testing."""
    find_network("yunet"), find_network("sface")
    lfw = tmp_path / "lfw"
    lfw.mkdir()
    everybody = extract_people(lfw, select=lambda name: name.endswith(("_0001.jpg", "_0002.jpg")))
    several = [folder for folder in everybody if len(list(folder.iterdir())) == 2][:150]
    single = [folder for folder in everybody if len(list(folder.iterdir())) == 1][:640]
    for name in ("members", "probes", "strangers", "others"):
        (tmp_path / name).mkdir()
    for folder in several:
        for place, number in (("members", 1), ("probes", 2)):
            (tmp_path / place / folder.name).mkdir()
            file = f"{folder.name}_000{number}.jpg"
            (folder / file).rename(tmp_path / place / folder.name / file)
    for i, folder in enumerate(single):
        folder.rename(tmp_path / ("strangers", "others")[i % 2] / folder.name)

    def gallery(action, place, *more):
        return typed("gallery", action, "known.db", "sface", place, *more, cwd=tmp_path).stdout

    assert "sface" in typed("models", cwd=tmp_path).stdout
    assert gallery("enrol", "members", "--skip-errors").count("enrolled") >= 148
    assert "for a false positive identification rate of 0.01" in gallery(
        "calibrate", "strangers", "--fpir", "0.01", "--skip-errors", "--choose", "central"
    )
    others = gallery("identify", "others", "--choose", "central").splitlines()
    accepted = sum(line.split("\t")[1] != "unknown" for line in others)
    assert len(others) >= 318
    assert accepted <= 8  # 1 % of 320 is 3.2; P(more than 8) is 0.5 %
    probes = gallery("identify", "probes", "--choose", "central").splitlines()
    known = sum(line.split("\t")[1] == line.split("\t")[0].split("/")[-2] for line in probes)
    assert known >= 0.85 * len(probes)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_an_evaluation_draws_error_against_discarded_samples(lfw, tmp_path, capsys):
    people = tmp_path / "people"
    for name in ("Aaron_Peirsol", "Aaron_Sorkin", "AJ_Cook", "Aaron_Eckhart"):
        (people / name).mkdir(parents=True)
        for source in (lfw / name).iterdir():
            (people / name / source.name).write_bytes(source.read_bytes())
    options = ["--quality", "--far", "0.2", "--no-baselines", "-o", str(tmp_path / "out")]
    assert main(["evaluate", "sface", str(people), *options]) == 0
    assert "quality.svg" in capsys.readouterr().out
    assert (tmp_path / "out" / "quality.svg").read_text().lstrip().startswith("<?xml")
    curves = json.loads((tmp_path / "out" / "report.json").read_text())["rejection"]
    assert set(curves) == {"feature length", "detector score", "size", "sharpness", "frontal pose", "illumination"}
    assert [point["discarded"] for point in curves["sharpness"]] == [0.0, 0.05, 0.1, 0.2, 0.3]
