import json
import shutil

from hypersphere.cli.main import main
from hypersphere.recognition import Gallery
from hypersphere.recognition.stores import sqlite_store
from tests.cli.test_gallery import files, picture  # noqa: F401  (a fixture)
from tests.processes import typed


def run(files, action, *arguments, code=0, where="people.db"):  # noqa: F811
    done = typed("gallery", action, where, *arguments, cwd=files, code=code)
    return done.stderr if code else done.stdout


def test_forget_leaves_no_bytes_in_any_file(files):  # noqa: F811
    run(files, "enrol", "model", "people")
    run(files, "backup", "copy.db")
    with Gallery(files / "people.db") as gallery:
        own = gallery._store.features_of("bob")
        gallery._store.reject("bob", own[:1] + 1, ["lookalike-of-bob.png"])
        kept = gallery._store.features_of("ada")
    said = run(files, "forget", "bob")
    assert said.startswith("forgot bob: 4 templates erased\n")
    assert "copy.db still contains bob" in said
    searched = 0
    for file in files.glob("people.db*"):
        content = file.read_bytes()
        searched += len(content)
        assert b"bob" not in content, file
        assert not any(row.numpy().tobytes()[:64] in content for row in [*own, own[0] + 1]), file
    assert searched > 4096
    assert any(kept[0].numpy().tobytes() in file.read_bytes() for file in files.glob("people.db.features*"))
    assert run(files, "list") == "ada\t4\ncem\t4\n"
    assert run(files, "check").startswith("all is well")
    assert "still contains bob" in run(files, "forget", "bob", code=1)
    with Gallery(files / "copy.db") as copy:
        assert "bob" in copy
    assert json.loads(run(files, "forget", "cem", "--backups", "--json"))["backups"] == []
    with Gallery(files / "copy.db") as copy:
        assert "cem" not in copy


def test_forget_says_when_a_reader_keeps_the_log(files, monkeypatch, capsys):  # noqa: F811
    run(files, "enrol", "model", "people")
    monkeypatch.setattr(sqlite_store, "LOCK_SECONDS", 1)  # the command waits for readers, 30 seconds by default
    with Gallery(files / "people.db") as reader, reader._store._read_transaction():
        assert main(["gallery", "forget", str(files / "people.db"), "bob"]) == 1
    said = capsys.readouterr().err
    assert "another process is reading" in said or "could not be rewritten" in said
    assert "bob" not in run(files, "list")
    assert "is not in the gallery" in run(files, "forget", "bob", code=1)
    for file in files.glob("people.db*"):
        assert b"/bob/" not in file.read_bytes()


def test_reject_lowers_a_match_and_states_rates(files):  # noqa: F811
    run(files, "enrol", "model", "people")
    run(files, "calibrate", "model", "people", "--far", "0.0209")
    probe = picture(files / "probe.png", 1, 99)
    assert run(files, "identify", "model", probe).split("\t")[1] == "bob"
    said = run(files, "reject", "model", "bob", probe)
    assert "not bob" in said
    assert "of 4 templates of bob, the others recognized 4 before and" in said
    assert "expected share of strangers accepted: at most" in said
    before, after = (float(part) for part in said.splitlines()[0].split("\t")[2].split(" -> "))
    assert after < before
    line = run(files, "identify", "model", probe)
    assert f"{after:.4f}" in line or line.split("\t")[1] != "bob"
    found = json.loads(run(files, "reject", "model", "ada", probe, "--json"))
    assert found["identity"] == "ada"
    assert "is not in the gallery" in run(files, "reject", "model", "zoe", probe, code=1)


def test_audit_lists_and_shows(files):  # noqa: F811
    shutil.copy(files / "people" / "ada" / "0.png", files / "people" / "bob" / "stray.png")
    run(files, "enrol", "model", "people")
    said = run(files, "audit", "--page", "audit.html")
    assert any(line.startswith("outlier\tbob\t") and "stray.png" in line for line in said.splitlines())
    page = (files / "audit.html").read_text()
    assert "stray.png" in page
    assert "data:image/" in page
    found = json.loads(run(files, "audit", "--json", "--no-pictures"))
    assert found["templates"] == 13
    assert {one["kind"] for one in found["findings"]} == {"outlier", "duplicate"}


def test_migrate_with_and_without_pictures(files):  # noqa: F811
    run(files, "enrol", "model", "people")
    said = run(files, "migrate", "other")
    assert said.startswith("wrote people-migrated.db with 3 people: 12 templates embedded again, 0 mapped")
    assert run(files, "list", where="people-migrated.db") == run(files, "list")
    assert (
        run(files, "identify", "other", "people/cem", "--threshold", "0.1", where="people-migrated.db").count("cem\t")
        == 4
    )
    assert "overwrites nothing" in run(files, "migrate", "other", code=1)
    (files / "people").rename(files / "elsewhere")
    assert "too few to learn a map" in run(files, "migrate", "other", "-o", "b.db", code=1)
    assert not (files / "b.db").exists()
    assert "12 templates embedded" in run(files, "migrate", "other", "-o", "b.db", "--pictures", "elsewhere")
    mapped = run(files, "migrate", "other", "-o", "c.db", "--common", "elsewhere", "--old-model", "model", "--json")
    assert json.loads(mapped)["mapped"] == 12


def test_a_key_file_encrypts(files):  # noqa: F811
    assert "wrote k" in typed("gallery", "key", "k", cwd=files).stdout
    run(files, "enrol", "model", "people", "--key-file", "k")
    assert "is encrypted: give its key" in run(files, "list", code=1)
    assert run(files, "list", "--key-file", "k") == "ada\t4\nbob\t4\ncem\t4\n"
    assert all(b"people/" not in file.read_bytes() for file in files.glob("people.db*"))
    assert "encrypted         yes" in run(files, "info", "--key-file", "k")
    assert "a copy with 3 people" in run(files, "rekey", "plain.db", "--key-file", "k")
    assert run(files, "list", where="plain.db") == "ada\t4\nbob\t4\ncem\t4\n"
    typed("gallery", "key", "k", cwd=files, code=1)


def test_info(files):  # noqa: F811
    run(files, "enrol", "model", "people")
    run(files, "backup", "copy.db")
    said = run(files, "info")
    for text in (
        "people            3",
        "templates         12",
        "dimension         128",
        "encrypted         no",
        "copy.db",
    ):
        assert text in said
    found = json.loads(run(files, "info", "--json"))
    assert (found["identities"], found["counterexamples"], found["calibrations"]) == (3, 0, [])


def test_a_picture_unlike_the_others_is_reported_at_enrollment(files):  # noqa: F811
    run(files, "enrol", "model", "people")
    stray = picture(files / "stray.png", 0, 50)
    done = typed("gallery", "enrol", "people.db", "model", stray, "--identity", "bob", cwd=files)
    assert "stray.png: cosine" in done.stderr
    assert "with ada" in done.stderr
