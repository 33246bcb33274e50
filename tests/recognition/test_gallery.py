import os
import signal
import sqlite3
import subprocess
import sys
import textwrap

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from hypersphere.evaluation import threshold_at_far
from hypersphere.recognition import Gallery, fingerprint


@pytest.fixture
def gallery(tmp_path):
    with Gallery(tmp_path / "people.db") as opened:
        yield opened


def python(code, *arguments, **options):
    """A process of its own with this test's packages."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, **options
    )


def test_enrol_list_remove(gallery):
    numbers = gallery.enrol("bob", torch.eye(3)[:2], ["1.png", "2.png"])
    numbers += gallery.enrol("ada", torch.tensor([0.0, 0.0, 2.0]))
    numbers += gallery.enrol("bob", torch.tensor([[1.0, 1.0, 0.0]]))
    assert len(set(numbers)) == 4
    assert gallery.list() == {"ada": 1, "bob": 3}
    assert len(gallery) == 2
    assert "bob" in gallery
    assert gallery.remove("bob") == 3
    assert gallery.list() == {"ada": 1}
    assert "bob" not in gallery
    with pytest.raises(ValueError, match="identity 'bob' is not in the gallery"):
        gallery.remove("bob")


def test_features_are_kept_bit_for_bit(gallery):
    features = torch.randn(4, 7) * torch.tensor([1e-30, 1.0, 1e30, 1.0])[:, None]
    gallery.enrol("ada", features)
    (blob,) = gallery._db.execute("SELECT feature FROM templates WHERE id = 3").fetchone()
    assert blob == features[2].numpy().astype("<f4").tobytes()
    assert torch.equal(gallery._templates().features, features)


def test_verify_and_identify(gallery):
    gallery.enrol("ada", torch.tensor([[1.0, 0.0, 0.0], [1.0, 1.0, 0.0]]))
    gallery.enrol("bob", torch.tensor([[0.0, 0.0, 1.0]]))
    probe = torch.tensor([[2.0, 1.9, 0.0], [0.0, -1.0, 0.1]])
    yes, no = gallery.verify("ada", probe, threshold=0.9)
    assert (yes.identity, yes.accepted, no.accepted) == ("ada", True, False)
    assert yes.score == pytest.approx(
        torch.cosine_similarity(probe[0], torch.tensor([1.0, 1.0, 0.0]), dim=0).item(), abs=1e-6
    )
    first, second = gallery.identify(probe, k=2, threshold=0.9)
    assert [(m.identity, m.accepted) for m in first] == [("ada", True), ("bob", False)]
    assert [(m.identity, m.accepted) for m in second] == [("bob", False), ("ada", False)]
    assert len(gallery.identify(probe, k=5, threshold=0.9)[0]) == 2


@given(st.integers(1, 6), st.integers(1, 4), st.integers(1, 8), st.integers(0, 1000))
def test_identify_is_that_of_loops(people, most, k, seed):
    generator = torch.Generator().manual_seed(seed)
    templates = {
        f"p{i}": torch.randn(int(torch.randint(1, most + 1, (), generator=generator)), 3, generator=generator)
        for i in range(people)
    }
    probes = torch.randn(4, 3, generator=generator)
    with Gallery(":memory:") as gallery:
        for name, features in templates.items():
            gallery.enrol(name, features)
        found = gallery.identify(probes, k, threshold=0.5)
    for probe, matches in zip(probes, found, strict=True):
        scores = {
            n: torch.cosine_similarity(probe[None].double(), f.double()).max().item() for n, f in templates.items()
        }
        expected = sorted(scores, key=lambda n: -scores[n])[:k]
        assert [m.identity for m in matches] == expected
        assert [m.score for m in matches] == pytest.approx([scores[n] for n in expected], abs=1e-6)
        assert [m.accepted for m in matches] == [scores[n] >= 0.5 for n in expected]


def test_the_threshold_comes_from_calibration_pairs(gallery, tmp_path):
    same = torch.arange(2000) % 2 == 0
    scores = 0.2 * torch.randn(2000) + 0.5 * same
    assert gallery.threshold is None
    threshold = gallery.calibrate(scores, same, far=0.01)
    assert threshold == threshold_at_far(scores, same, 0.01)
    assert (scores[~same] >= threshold).double().mean() <= 0.01
    with Gallery(tmp_path / "people.db") as again:
        assert again.threshold == threshold
    gallery.enrol("ada", torch.tensor([1.0, 0.0]))
    probe = torch.tensor(
        [
            [threshold + 0.01, (1 - (threshold + 0.01) ** 2) ** 0.5],
            [threshold - 0.01, (1 - (threshold - 0.01) ** 2) ** 0.5],
        ]
    )
    assert [m[0].accepted for m in gallery.identify(probe)] == [True, False]
    with pytest.raises(ValueError, match=r"far=0.0001 needs at least 10000 different pairs"):
        gallery.calibrate(scores, same, far=1e-4)
    assert gallery.threshold == threshold


def test_features_of_another_model_are_refused(tmp_path):
    model, other = nn.Linear(3, 2), nn.Linear(3, 2)
    path = tmp_path / "people.db"
    with Gallery(path, model) as gallery:
        gallery.enrol("ada", torch.rand(2))
        assert gallery.fingerprint == fingerprint(model)
    with pytest.raises(
        ValueError,
        match=f"holds features of model {fingerprint(model)[:12]}, got features of model {fingerprint(other)[:12]}",
    ):
        Gallery(path, other)
    with Gallery(path, fingerprint(model)) as gallery:
        gallery.enrol("ada", torch.rand(2))
    with Gallery(path) as gallery:  # no model: only what needs no features
        assert gallery.list() == {"ada": 2}
        for use in (
            lambda g: g.enrol("bob", torch.rand(2)),
            lambda g: g.identify(torch.rand(2)),
            lambda g: g.verify("ada", torch.rand(2)),
        ):
            with pytest.raises(ValueError, match="open it with that model"):
                use(gallery)
        assert gallery.remove("ada") == 2


def test_a_gallery_without_a_model_refuses_one(tmp_path):
    Gallery(tmp_path / "people.db").close()
    with pytest.raises(ValueError, match="holds features of model unknown"):
        Gallery(tmp_path / "people.db", nn.Linear(2, 2))


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (torch.tensor([1.0, torch.nan]), "finite"),
        (torch.tensor([[1.0, 1.0], [0.0, 0.0]]), "a row of zeros"),
        (torch.rand(1, 1, 2), r"shape \(d,\) or \(n, d\)"),
        (torch.rand(0, 2), r"shape \(d,\) or \(n, d\)"),
        (torch.rand(3), "dimension 2, that of the gallery, got 3"),
    ],
)
def test_enrol_refuses_features_and_leaves_nothing(gallery, features, message):
    gallery.enrol("ada", torch.rand(2))
    with pytest.raises(ValueError, match=message):
        gallery.enrol("eve", features)
    assert gallery.list() == {"ada": 1}


def test_refuses(gallery):
    with pytest.raises(ValueError, match="is empty: enrol someone first"):
        gallery.identify(torch.rand(2), threshold=0.5)
    with pytest.raises(ValueError, match="identity must be a name"):
        gallery.enrol("", torch.rand(2))
    with pytest.raises(ValueError, match="sources must name each of 1 features, got 2"):
        gallery.enrol("ada", torch.rand(2), ["a", "b"])
    gallery.enrol("ada", torch.rand(2))
    with pytest.raises(ValueError, match="threshold must be given, or the gallery calibrated"):
        gallery.identify(torch.rand(2))
    with pytest.raises(ValueError, match="identity 'bob' is not in the gallery"):
        gallery.verify("bob", torch.rand(2), 0.5)
    with pytest.raises(ValueError, match="dimension 2"):
        gallery.identify(torch.rand(3), threshold=0.5)


def test_other_files_are_refused_untouched(tmp_path):
    text, database = tmp_path / "notes.txt", tmp_path / "other.db"
    text.write_text("not a database, and long enough to be taken for one" * 20)
    with sqlite3.connect(database) as db:
        db.execute("CREATE TABLE things (x)")
    db.close()
    before = text.read_bytes(), database.read_bytes()
    with pytest.raises(ValueError, match=r"notes.txt cannot be opened as a gallery"):
        Gallery(text)
    with pytest.raises(ValueError, match=r"other.db is a database, but not a gallery"):
        Gallery(database)
    assert (text.read_bytes(), database.read_bytes()) == before
    with pytest.raises(ValueError, match="there is no gallery at"):
        Gallery(tmp_path / "missing.db", create=False)
    assert not (tmp_path / "missing.db").exists()
    with pytest.raises(ValueError, match="cannot be opened as a gallery"):
        Gallery(tmp_path / "no folder" / "people.db")


def test_a_damaged_gallery_is_an_os_error(tmp_path):
    path = tmp_path / "people.db"
    with Gallery(path) as gallery:
        for i in range(50):
            gallery.enrol(f"person {i}", torch.rand(4, 100))
    content = bytearray(path.read_bytes())
    content[5000:] = b"\xff" * (len(content) - 5000)
    path.write_bytes(content)
    with pytest.raises((OSError, ValueError), match="gallery"), Gallery(path) as gallery:
        gallery.list()


def test_a_later_version_is_refused(tmp_path):
    path = tmp_path / "people.db"
    Gallery(path).close()
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(ValueError, match="gallery of version 99; this release reads up to version 1"):
        Gallery(path)


def test_a_locked_gallery_is_an_os_error(gallery, tmp_path):
    gallery._db.execute("PRAGMA busy_timeout = 50")
    with Gallery(tmp_path / "people.db") as other, other._writing(), pytest.raises(OSError, match="locked"):
        gallery.enrol("ada", torch.rand(2))
    gallery.enrol("ada", torch.rand(2))
    assert gallery.list() == {"ada": 1}


def test_a_failure_inside_a_change_leaves_nothing_of_it(gallery, monkeypatch):
    from hypersphere.recognition import gallery as module

    calls = []

    def encode(row):
        calls.append(row)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return b"\0" * 8

    monkeypatch.setattr(module, "encode", encode)
    with pytest.raises(KeyboardInterrupt):
        gallery.enrol("ada", torch.rand(5, 2))
    assert gallery.list() == {}


ENROL_FOREVER = """
    import sys, torch
    from hypersphere.recognition import Gallery
    gallery = Gallery(sys.argv[1])
    for i in range(10**6):
        gallery.enrol(f"person {i}", torch.full((3, 64), float(i + 1)))
        print(i, flush=True)  # acknowledged
"""


@pytest.mark.parametrize("after", [1, 40])
def test_a_kill_during_enrolment_loses_nothing_acknowledged(tmp_path, after):
    path = tmp_path / "people.db"
    process = python(ENROL_FOREVER, path)
    acknowledged = [int(process.stdout.readline()) for _ in range(after)]
    os.kill(process.pid, signal.SIGKILL)
    acknowledged += [int(line) for line in process.stdout.read().splitlines(keepends=True) if line.endswith("\n")]
    assert process.wait() == -signal.SIGKILL
    process.stdout.close()
    process.stderr.close()
    with Gallery(path) as gallery:
        kept = gallery.list()
        assert {f"person {i}" for i in acknowledged} <= kept.keys()
        assert set(kept.values()) == {3}  # whole enrolments only
        assert len(kept) <= len(acknowledged) + 1
        assert torch.equal(gallery._templates().features[0], torch.ones(64))
        gallery.enrol("after", torch.rand(64))
        assert gallery._db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


READ = """
    import sys, torch
    from hypersphere.recognition import Gallery
    with Gallery(sys.argv[1]) as gallery:
        for line in sys.stdin:
            best = gallery.identify(torch.ones(1, 64), threshold=0.5)[0][0]
            print(best.identity, *gallery.list().values(), flush=True)
"""


def test_two_processes_read_while_one_writes(tmp_path):
    path = tmp_path / "people.db"

    def ask():
        for reader in readers:
            reader.stdin.write("read\n")
            reader.stdin.flush()
        return [reader.stdout.readline() for reader in readers]

    with Gallery(path) as gallery:
        gallery.enrol("ada", torch.ones(3, 64))
        readers = [python(READ, path, stdin=subprocess.PIPE) for _ in range(2)]
        assert ask() == ["ada 3\n"] * 2
        with gallery._writing():  # what enrol does, held open in the middle
            gallery._db.execute("INSERT INTO identities(name) VALUES ('bob')")
            assert ask() == ["ada 3\n"] * 2, "a change is not seen before it is whole, and does not block"
        assert ask() == ["ada 3 0\n"] * 2
        for i in range(20):
            gallery.enrol(f"person {i:02}", torch.randn(3, 64))
            if i % 5 == 0:
                assert ask() == ["ada 3 0" + " 3" * (i + 1) + "\n"] * 2
        for reader in readers:
            _, error = reader.communicate(timeout=60)
            assert reader.returncode == 0, error


def test_changes_of_another_process_are_seen(tmp_path):
    path = tmp_path / "people.db"
    with Gallery(path) as one, Gallery(path) as two:
        one.enrol("ada", torch.tensor([1.0, 0.0]))
        assert two.identify(torch.tensor([1.0, 0.0]), threshold=0.9)[0][0].identity == "ada"
        one.remove("ada")
        one.enrol("bob", torch.tensor([1.0, 0.1]))
        assert two.identify(torch.tensor([1.0, 0.0]), threshold=0.9)[0][0].identity == "bob"


def test_several_processes_may_make_the_same_gallery(tmp_path):
    code = """
        import sys, torch
        from hypersphere.recognition import Gallery
        sys.stdin.readline()
        with Gallery(sys.argv[1]) as gallery:
            gallery.enrol(sys.argv[2], torch.ones(1, 4))
    """
    processes = [python(code, tmp_path / "people.db", f"p{i}", stdin=subprocess.PIPE) for i in range(2)]
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    for process in processes:
        _, error = process.communicate(timeout=60)
        assert process.returncode == 0, error
    with Gallery(tmp_path / "people.db") as gallery:
        assert gallery.list() == {"p0": 1, "p1": 1}
