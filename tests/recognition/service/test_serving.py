import signal
import socket
import threading
import time

import httpx
import pytest

from hypersphere.recognition import Gallery
from hypersphere.recognition.service.serving import listener, serve
from tests.recognition.service.people import calibrate, embedder, picture, refused
from tests.recognition.service.server import Server


def enrol(client, name, person, shot=0):
    return client.post("/v1/persons", data={"name": name}, files={"image": picture(person, shot)})


def test_a_stop_and_a_kill_lose_nothing_that_was_acknowledged(tmp_path):
    with Server(tmp_path) as server, server.client() as client:
        assert server.how == "open to everybody on this machine: no key is set"
        assert client.get("/v1/health").json()["gallery"] == "empty"
        assert enrol(client, "ada", 0).status_code == 201
        calibrate(server.gallery, embedder())
        assert client.post("/v1/search", files={"image": picture(0, 5)}).json()["person"] == "ada"
        acknowledged, answers = ["ada"], []
        begun = threading.Event()

        def keep_enrolling():
            with server.client() as other:
                for i in range(10_000):
                    try:
                        answer = enrol(other, f"p{i}", i % 3, i)
                    except httpx.HTTPError:
                        return
                    answers.append(answer.status_code)
                    acknowledged.append(f"p{i}")
                    begun.set()

        thread = threading.Thread(target=keep_enrolling)
        thread.start()
        assert begun.wait(60)
        status, said = server.stop()
        thread.join(60)
        assert status == 0, server.errors()
        assert "everything that was acknowledged is on disk" in said
        assert set(answers) == {201}
        assert "Traceback" not in server.errors()
    limits = ("--limit", "sending_seconds=0.3", "--limit", "body_bytes=100000")
    with Server(tmp_path, *limits) as server, server.client() as client:
        found = [person["name"] for person in client.get("/v1/persons").json()["persons"]]
        assert set(found) >= set(acknowledged)
        assert client.post("/v1/search", files={"image": picture(0, 5)}).json()["person"] == "ada"
        slow_and_huge(server, client)
        assert enrol(client, "last", 1).status_code == 201
        server.stop(signal.SIGKILL)
    with Gallery(server.gallery, create=False) as gallery:
        assert "last" in gallery.list()
        assert gallery.check() == []


def slow_and_huge(server, client):
    """What a server must survive, asked on real connections."""
    refused(client.post("/v1/search", files={"image": bytes(3_000_000)}), 413, "too_large")

    def endless():
        yield b"--x\r\n"
        for _ in range(300):
            yield bytes(10_000)

    form = {"content-type": "multipart/form-data; boundary=x"}
    refused(client.post("/v1/search", content=endless(), headers=form), 413, "too_large")
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as slow:
        slow.sendall(b"POST /v1/search HTTP/1.1\r\nHost: 127.0.0.1\r\n")  # and never the rest of the head
        assert slow.recv(1000) == b""
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as slow:
        head = "POST /v1/search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n"
        slow.sendall(f"{head}Content-Type: multipart/form-data; boundary=x\r\n\r\n--x".encode())
        assert slow.recv(1000).startswith(b"HTTP/1.1 408 ")
    assert client.get("/v1/health").status_code == 200


def test_a_request_that_was_begun_is_answered_after_the_signal(make_engine, model, monkeypatch, capsys):
    engine = make_engine()
    begun = threading.Event()

    def slow(pixels):
        begun.set()
        time.sleep(0.5)
        return model(pixels)

    answers = []

    def ask():
        address = None
        while address is None:
            found = capsys.readouterr().out.partition("http://")[2].split()
            address = found[0] if found else None
            time.sleep(0.02)
        engine.batcher.embed = slow
        thread = threading.Thread(
            target=lambda: answers.append(
                httpx.post(
                    f"http://{address}/v1/persons", data={"name": "ada"}, files={"image": picture(0)}, timeout=30
                )
            )
        )
        thread.start()
        begun.wait(30)
        signal.raise_signal(signal.SIGTERM)
        thread.join(30)

    asker = threading.Thread(target=ask)
    asker.start()
    before = signal.getsignal(signal.SIGTERM)
    serve(engine, port=0)
    asker.join(30)
    assert [answer.status_code for answer in answers] == [201]
    assert signal.getsignal(signal.SIGTERM) is before
    assert not engine.batcher.alive


def test_beyond_this_machine_only_with_keys():
    for host in ("0.0.0.0", "::"):
        with pytest.raises(ValueError, match="can be reached by others, and no key is set"):
            listener(host, 0, keys=False)
    with listener("0.0.0.0", 0, keys=True) as open_socket:
        assert open_socket.getsockname()[0] == "0.0.0.0"
    with listener("localhost", 0, keys=False) as own:
        port = own.getsockname()[1]
        with pytest.raises(OSError, match=f"{own.getsockname()[0]}:{port} cannot be listened on"):
            listener(own.getsockname()[0], port, keys=False)
