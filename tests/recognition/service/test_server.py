import contextlib
import resource
import signal
import socket
import subprocess
import sys
import threading
import time

import httpx
import pytest

from hypersphere.recognition import Gallery
from hypersphere.recognition.service.server import open_listener, serve
from tests.recognition.service.people import calibrate, embedder, picture, refused
from tests.recognition.service.server import Server


def enrol(client, name, person, shot=0):
    return client.post("/v1/persons", data={"name": name}, files={"image": picture(person, shot)})


def test_a_stop_and_a_kill_lose_nothing_that_was_acknowledged(tmp_path):
    with Server(tmp_path) as server, server.client() as client:
        assert server.how == "open to everybody on this machine: no bearer key is set"
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
    """Send oversized and unfinished requests over real connections. The server must survive them."""
    refused(client.post("/v1/search", files={"image": bytes(3_000_000)}), 413, "too_large")

    def endless():
        yield b'--x\r\nContent-Disposition: form-data; name="image"; filename="a"\r\n\r\n'
        for _ in range(300):
            yield bytes(10_000)

    form = {"content-type": "multipart/form-data; boundary=x"}
    refused(client.post("/v1/search", content=endless(), headers=form), 413, "too_large")
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as slow:
        slow.sendall(b"POST /v1/search HTTP/1.1\r\nHost: 127.0.0.1\r\n")  # the rest of the head never comes
        assert slow.recv(1000) == b""
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as slow:
        head = "POST /v1/search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n"
        slow.sendall(f"{head}Content-Type: multipart/form-data; boundary=x\r\n\r\n--x".encode())
        assert slow.recv(1000).startswith(b"HTTP/1.1 408 ")
    assert client.get("/v1/health").status_code == 200


def test_a_request_that_was_begun_is_answered_after_the_signal(make_recognizer, model, monkeypatch, capsys):
    recognizer = make_recognizer()
    begun = threading.Event()

    def slow(pixels):
        begun.set()
        time.sleep(0.5)
        return model.of_windows(pixels)

    answers = []

    def ask():
        address = None
        while address is None:
            found = capsys.readouterr().out.partition("http://")[2].split()
            address = found[0] if found else None
            time.sleep(0.02)
        recognizer.batcher.embed = slow
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
    serve(recognizer, port=0)
    asker.join(30)
    assert [answer.status_code for answer in answers] == [201]
    assert signal.getsignal(signal.SIGTERM) is before
    assert not recognizer.batcher.alive


def test_beyond_this_machine_only_with_keys():
    for host in ("0.0.0.0", "::"):
        with pytest.raises(ValueError, match=r"other machines can reach host .*, and no bearer key is set"):
            open_listener(host, 0, has_keys=False)
    with open_listener("0.0.0.0", 0, has_keys=True) as open_socket:
        assert open_socket.getsockname()[0] == "0.0.0.0"
    with open_listener("localhost", 0, has_keys=False) as own:
        port = own.getsockname()[1]
        with pytest.raises(OSError, match=f"{own.getsockname()[0]}:{port} cannot be listened on"):
            open_listener(own.getsockname()[0], port, has_keys=False)


def test_the_system_takes_little_of_an_answer_that_nobody_reads():
    """Otherwise a client that requests the page repeatedly and reads nothing makes the server build thousands."""
    with open_listener("127.0.0.1", 0, has_keys=False) as place, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(place.getsockname())
        answering, _ = place.accept()
        with answering:
            answering.setblocking(False)
            taken = 0
            with contextlib.suppress(BlockingIOError):
                while taken < 2**24:
                    taken += answering.send(bytes(16384))
    assert taken < 2**19


def connect(server):
    link = socket.create_connection(("127.0.0.1", server.port), timeout=30)
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    return link


def is_open(link):
    link.settimeout(0.2)
    try:
        return link.recv(1) != b""
    except TimeoutError:
        return True
    except OSError:
        return False


def test_clients_that_never_read_are_closed_and_block_nobody(tmp_path):
    """64 such connections without a key used to turn every request into a 503 while they stayed open."""
    limits = ["sending_seconds=1", "per_address=40", "at_once=60", "per_minute=1e6", "burst=100000"]
    options = [word for limit in limits for word in ("--limit", limit)]
    with Server(tmp_path, *options) as server, server.client(headers={"Connection": "close"}) as client:
        request = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        links = [connect(server) for _ in range(39)]
        for link in links:
            link.sendall(request * 200)
        assert client.get("/v1/health").status_code == 200
        more = [connect(server) for _ in range(30)]
        time.sleep(0.5)
        assert sum(map(is_open, more)) <= 2, "one address has forty connections"
        end = time.monotonic() + 30
        while time.monotonic() < end and _open_connections(server) > 2:
            time.sleep(0.5)
        assert _open_connections(server) <= 2, "those that do not read are closed"
        assert client.get("/v1/health").status_code == 200
        for link in links + more:
            link.close()
        assert "Traceback" not in server.errors()


def _open_connections(server):
    """Count the established connections on the server's port."""
    port = f":{server.port:04X}"
    with open("/proc/net/tcp") as table:
        rows = [line.split() for line in table][1:]
    return sum(row[1].endswith(port) and row[3] == "01" for row in rows)


@pytest.mark.skipif(sys.platform != "linux", reason="needs limits of open files")
def test_more_connections_than_descriptors_fill_no_log(tmp_path, monkeypatch):
    """With a limit of 128 files, 300 connections used to log 34,584 tracebacks in two seconds and got no answer."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    popen = subprocess.Popen
    limit = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (192, 192))
    monkeypatch.setattr(subprocess, "Popen", lambda *args, **kwargs: popen(*args, preexec_fn=limit, **kwargs))
    with Server(tmp_path, "--limit", "per_address=1000") as server:
        monkeypatch.undo()
        links = [connect(server) for _ in range(300)]
        time.sleep(2)
        for link in links:
            link.close()
        with server.client() as client:
            assert client.get("/v1/health").status_code == 200
        assert "Traceback" not in server.errors()
        assert len(server.errors()) < 20_000
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before
