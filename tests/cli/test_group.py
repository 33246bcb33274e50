import json

from tests.processes import typed
from tests.recognition.service.people import embedder
from tests.recognition.test_album import photographs


def prepare(folder):
    photographs(folder / "photos", count=4, each=3)
    labeled = folder / "labeled"
    labeled.mkdir()
    photographs(labeled, count=10, each=4)
    for i, path in enumerate(sorted(labeled.glob("*.png"))):
        home = labeled / f"person {i // 4}"
        home.mkdir(exist_ok=True)
        path.rename(home / path.name)
    embedder().save(folder / "embedder.safetensors")
    return ["--embedder", "embedder.safetensors", "--calibration", "labeled", "--prior", "0.3"]


def test_photographs_are_grouped_and_added(tmp_path):
    options = prepare(tmp_path)
    done = typed("group", "photos", "-o", "party.album", *options, "--json", cwd=tmp_path)
    result = json.loads(done.stdout)
    assert (result["photographs_added"], result["samples"], result["groups"]) == (12, 12, 4)
    typed("album", "name", "party.album", "1", "Ada", cwd=tmp_path)
    again = typed("group", "photos", "-o", "party.album", *options, cwd=tmp_path)
    assert "0 photographs added, 12 known already" in again.stdout
    assert "4 groups (1 named)" in again.stdout
    assert "hypersphere serve --album party.album" in again.stdout


def test_an_embedder_without_calibration_says_what_to_do(tmp_path):
    prepare(tmp_path)
    done = typed("group", "photos", "-o", "party.album", "--embedder", "embedder.safetensors", cwd=tmp_path, code=1)
    assert "--calibration FOLDER" in done.stderr
    assert not (tmp_path / "party.album").exists()


def test_no_groups_are_explained(tmp_path):
    prepare(tmp_path)
    options = ["--embedder", "characters", "--json"]
    note = json.loads(typed("group", "photos", "-o", "a.album", *options, cwd=tmp_path).stdout)["note"]
    assert "nothing can be grouped with --prior 0.0001" in note
    assert "try --prior 0.001 " in note
    done = typed("group", "photos", "-o", "b.album", "--embedder", "characters", "--prior", "0.002", cwd=tmp_path)
    assert "nothing can be grouped" not in done.stdout


def test_unusable_photographs_are_named_once(tmp_path):
    options = prepare(tmp_path)
    (tmp_path / "photos" / "torn.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(40))
    done = typed("group", "photos", "-o", "party.album", *options, cwd=tmp_path)
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"not usable: {tmp_path / 'photos' / 'torn.png'}: ")
    assert line.count("torn.png") == 1
