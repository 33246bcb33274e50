import pytest

from hypersphere.cli.main import main
from hypersphere.recognition import Gallery
from hypersphere.recognition.stores.protection import KEY_VARIABLE, write_key

pytest.importorskip("fastapi", reason="the service needs FastAPI: pip install 'torch-hypersphere[serve]'")

from hypersphere.recognition import service
from tests.recognition.service.people import embedder, picture

KEY = "a-key-of-some-length"


@pytest.fixture
def files(tmp_path, monkeypatch):
    embedder().save(tmp_path / "model")
    embedder(seed=2).save(tmp_path / "other")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HYPERSPHERE_KEYS", raising=False)
    return tmp_path


@pytest.fixture
def served(monkeypatch):
    """Record the arguments of ``serve`` instead of starting the service."""
    calls = []
    monkeypatch.setattr(
        service, "serve", lambda recognizer, *rest: calls.append((recognizer.limits, recognizer.gallery.state(), *rest))
    )
    monkeypatch.setattr("hypersphere.recognition.service.server.log_to_stderr", lambda: None)
    return calls


def test_what_is_given_reaches_the_server(files, served, monkeypatch, capsys):
    monkeypatch.setenv("HYPERSPHERE_KEYS", KEY)
    assert main(["serve", "model", "people.db", "--host", "0.0.0.0", "--port", "81", "--limit", "burst=3"]) == 0
    ((limits, state, host, port, keys),) = served
    assert (limits.burst, state, host, port) == (3, "empty", "0.0.0.0", 81)
    assert keys.owner(f"Bearer {KEY}")
    assert "nobody is enrolled in people.db yet" in capsys.readouterr().err
    assert not (files / "people.db").exists()


def test_a_gallery_that_cannot_be_searched_is_said_at_once(files, served, capsys):
    with Gallery("people.db", embedder().fingerprint) as gallery:
        (files / "0.png").write_bytes(picture(0))
        gallery.enrol("ada", embedder()("0.png"))
    assert main(["serve", "model", "people.db"]) == 0
    assert "people.db has no threshold yet" in capsys.readouterr().err
    assert main(["serve", "other", "people.db"]) == 0
    assert "holds features of another model" in capsys.readouterr().err


def test_an_encrypted_gallery_is_opened_with_its_key(files, served, monkeypatch, capsys):
    pytest.importorskip("cryptography", reason="pip install 'torch-hypersphere[encryption]'")
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    write_key("people.key")
    (files / "0.png").write_bytes(picture(0))
    with Gallery("people.db", embedder().fingerprint, key="people.key") as gallery:
        gallery.enrol("ada", embedder()("0.png"))
    assert main(["serve", "model", "people.db"]) == 1
    assert "give its key by --key-file" in capsys.readouterr().err
    assert main(["serve", "model", "people.db", "--key-file", "people.key"]) == 0
    assert [call[1] for call in served] == ["not_calibrated"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["absent", "people.db"], "there is no embedder absent"),
        (["model", "model"], "cannot be opened as a gallery"),
        (["model", "people.db", "--port", "70000"], "--port must be between 0 and 65535"),
        (["model", "people.db", "--limit", "speed=9"], "a limit must be name=value"),
        (["model", "people.db", "--keys", "absent"], "absent"),
        (["model", "people.db", "--host", "0.0.0.0"], "no bearer key is set"),
    ],
)
def test_a_user_error_is_one_line(files, capsys, arguments, message):
    assert main(["serve", *arguments]) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("hypersphere serve: ")
    assert message in error
