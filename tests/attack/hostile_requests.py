"""The service under hostile requests for ten minutes: no traceback, no leak, and no access without a key."""

import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator

from . import tally as rows
from .flipped_bits import _embedder_file
from .fuzzed_images import _originals
from .hostile_messages import KEY, REQUESTS, Sent
from .tally import Tally

SECONDS, CLIENTS, PAUSE = 600.0, 4, 0.05
SENDING = 2.0  # time limit of the service for receiving a request, in seconds
GROWTH = 48.0  # MiB of growth allowed after the first fifth; more is a leak


def attack(scale: float) -> Iterator[Tally]:
    """Yield one tally."""
    part = "ten minutes of hostile requests"
    if not rows.due("service", part):
        return
    tally = Tally("service", part)
    with tempfile.TemporaryDirectory() as folder:
        _embedder_file(pathlib.Path(folder) / "embedder.safetensors")
        served = Served(pathlib.Path(folder))
        try:
            _hostile(tally, served, scale * SECONDS)
        finally:
            served.stop()
        text = served.log.read_text(errors="replace")
        found = re.search(r"(?:Traceback|^\S+ \S+ (?:ERROR|CRITICAL))[\s\S]{0,1500}", text, re.MULTILINE)
        tally.check(found is None, f"the log holds a traceback: {found and found[0]}", "no traceback")
        people = _people(pathlib.Path(folder) / "people.db")
        lost = [name for name in served.enrolled if name not in people]
        tally.check(not lost, f"acknowledged and lost: {lost[:5]}", "all acknowledged people are enrolled")
    yield tally


class Served:
    """``hypersphere serve`` with a key, in its own process, on 127.0.0.1 only."""

    def __init__(self, folder: pathlib.Path):
        self.log, self.enrolled = folder / "log", set[str]()
        command = [
            sys.executable,
            "-m",
            "hypersphere.cli.main",
            "serve",
            "embedder.safetensors",
            "people.db",
            "--port",
            "0",
        ]
        for limit in (
            "per_minute=1e9",
            "burst=1000000",
            f"sending_seconds={SENDING}",
            "body_bytes=1000000",
            "pixels=1000000",
        ):
            command += ["--limit", limit]
        source = str(pathlib.Path(__file__).parents[2] / "src")
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "HYPERSPHERE_KEYS": KEY, "PYTHONPATH": source}
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(
                command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=log, text=True
            )
        assert self.process.stdout is not None
        found = re.search(r"http://127.0.0.1:(\d+)", self.process.stdout.readline())
        assert found is not None
        self.port = int(found[1])

    def memory(self) -> float:
        """Return the resident memory in MiB."""
        text = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.findall(r"VmRSS:\s+(\d+)", text)[0]) / 1024

    def files(self) -> int:
        """Return the number of open file descriptors."""
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)


def _hostile(tally: Tally, served: Served, seconds: float) -> None:
    pictures, lock, start = _originals(), threading.Lock(), time.monotonic()
    first: dict[str, float] = {}

    def client(number: int) -> None:
        draw = random.Random(9000 + number)
        while time.monotonic() - start < seconds:
            name = draw.choice(list(REQUESTS))
            sent = REQUESTS[name](draw, pictures)
            status, body, took = _exchange(served.port, sent, draw)
            wrong = _wrong(name, sent, status, body, took)
            with lock:
                tally.check(not wrong, f"{name}: {wrong} for {sent[0][:300]!r}", f"{name}: {status or 'closed'}")
                if status == 201:
                    served.enrolled.update(re.findall(r'"name":"(person \d+)"', body))
                if not first and time.monotonic() - start > seconds / 5:
                    first.update(memory=served.memory(), files=served.files())
            time.sleep(PAUSE)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    time.sleep(SENDING + 2)
    tally.check(
        served.process.poll() is None, f"the service ended with {served.process.poll()}", "the service keeps running"
    )
    grown, opened = served.memory() - first["memory"], served.files() - first["files"]
    tally.conditions = {
        "minutes": round(seconds / 60, 1),
        "clients": CLIENTS,
        "MiB grown": round(grown, 1),
        "descriptors grown": opened,
    }
    tally.check(grown < GROWTH, f"memory grew by {grown:.0f} MiB", "memory does not grow")
    tally.check(opened < 20, f"{opened} more descriptors are open", "open descriptors do not grow")


def _wrong(name: str, sent: Sent, status: int | None, body: str, took: float) -> str:
    if "Traceback" in body or "site-packages" in body or 'File "' in body:
        return f"the answer shows a traceback: {body[:300]}"
    if status is not None and status >= 500 and status != 503:
        return f"status {status}: {body[:300]}"
    if not sent[1] and status is not None and 200 <= status < 300:
        return f"a stranger got {status}: {body[:200]}"
    if name == "valid request" and status != 201:
        return f"status {status}: {body[:200]}"
    return f"held the connection for {took:.0f} s" if took > 60 else ""


def _exchange(port: int, sent: Sent, draw: random.Random) -> tuple[int | None, str, float]:
    """Return status, text and seconds of the answer. The status is None if the connection closed without an answer."""
    content, _, slow = sent
    start, found = time.monotonic(), b""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=45) as link:
            if slow:
                for at in range(min(len(content), 60)):
                    link.sendall(content[at : at + 1])
                    time.sleep(slow)
            else:
                link.sendall(content)
            if not sent[1] and draw.random() < 0.03:
                return None, "", 0.0  # disconnect without reading the answer
            link.settimeout(45)
            while part := link.recv(65536):
                found += part
                if b"\r\n\r\n" in found and len(found) > 1 << 20:
                    break
    except OSError:
        pass  # the service may refuse by closing the connection
    head = re.match(rb"HTTP/1\.1 (\d{3})", found)
    return int(head[1]) if head else None, found.decode("utf-8", "replace"), time.monotonic() - start


def _people(path: pathlib.Path) -> dict[str, int]:
    from hypersphere.recognition import Gallery

    with Gallery(path, create=False) as gallery:
        assert not gallery.check()
        return dict(gallery.list())
