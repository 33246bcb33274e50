"""All attacks on the service at once, next to a well-behaved client from another address.

The client has its own process, because it would wait for the interpreter lock in the process of the attackers.
"""

import contextlib
import multiprocessing
import pathlib
import random
import re
import socket
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor

from . import tally as rows
from .expensive_pictures import many_scans
from .flipped_bits import _embedder_file
from .fuzzed_images import _originals
from .hostile_messages import FORM, REQUESTS, _form, _request
from .hostile_requests import Served, _exchange, _people
from .tally import Tally

SECONDS, ALONE = 600.0, 60.0
PAUSE = 0.1  # seconds between requests of a client


def attack(scale: float) -> Iterator[Tally]:
    """Yield one tally."""
    part = "a mix of all attacks"
    if not rows.due("mixed attack", part):
        return
    tally = Tally("mixed attack", part)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        _embedder_file(folder / "embedder.safetensors")
        served = Served(folder)
        try:
            _disturb(tally, served, folder, scale)
        finally:
            served.stop()
        text = served.log.read_text(errors="replace")
        found = re.search(r"Traceback[\s\S]{0,1500}", text)
        tally.check(found is None, f"the log holds a traceback: {found and found[0]}", "no traceback")
        people = _people(folder / "people.db")
        lost = [name for name in served.enrolled if name not in people]
        tally.check(not lost, f"acknowledged and lost: {lost[:5]}", "all acknowledged people are enrolled")
    yield tally


def _disturb(tally: Tally, served: Served, folder: pathlib.Path, scale: float) -> None:
    pictures, end = _originals(), threading.Event()
    _exchange(
        served.port, REQUESTS["valid request"](random.Random(32), pictures), random.Random(32)
    )  # creates the gallery
    form = _form([('name="image"; filename="a.png"', pictures[0][1])])
    requests = [_request("/v1/health", method="GET"), _request("/v1/embeddings", form, kind=FORM)]
    attackers: list[Callable[[], None]] = [
        lambda: _send_hostile(tally, served, pictures, end),
        lambda: _never_read(served, end),
        lambda: _send_expensive(served, end),
        lambda: _hold_lock(folder / "people.db", end),
    ]
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as clients:
        clients.submit(behave_well, served.port, requests, 1.0).result()
        alone = clients.submit(behave_well, served.port, requests, scale * ALONE).result()
        threads = [threading.Thread(target=attacker) for attacker in attackers]
        for thread in threads:
            thread.start()
        during = clients.submit(behave_well, served.port, requests, scale * SECONDS).result()
    end.set()
    for thread in threads:
        thread.join()
    for _, status in alone + during:
        tally.check(status.startswith("HTTP/1.1 200"), f"a client that behaves well got {status!r}", "answered")
    tally.check(
        served.process.poll() is None, f"the service ended with {served.process.poll()}", "the service keeps running"
    )
    tally.conditions = {
        "minutes": round(scale * SECONDS / 60, 1),
        "p99 alone": f"{_percentile(alone, 0.99):.0f} ms",
        "p99 under attack": f"{_percentile(during, 0.99):.0f} ms",
        "median alone": f"{_percentile(alone, 0.5):.0f} ms",
        "median under attack": f"{_percentile(during, 0.5):.0f} ms",
    }


def behave_well(port: int, requests: list[bytes], seconds: float) -> list[tuple[float, str]]:
    """Send requests from another address of this machine. Return the milliseconds and the first line of each answer."""
    start, answers = time.monotonic(), list[tuple[float, str]]()
    while time.monotonic() - start < seconds:
        begun, found = time.monotonic(), b""
        with contextlib.suppress(OSError), socket.socket() as link:
            link.settimeout(45)
            link.bind(("127.0.0.2", 0))
            link.connect(("127.0.0.1", port))
            link.sendall(requests[len(answers) % len(requests)])
            while data := link.recv(65536):
                found += data
        answers.append((1e3 * (time.monotonic() - begun), found.split(b"\r\n")[0].decode(errors="replace")))
        time.sleep(PAUSE)
    return answers


def _percentile(answers: list[tuple[float, str]], share: float) -> float:
    return sorted(took for took, _ in answers)[int(share * len(answers))]


def _send_hostile(tally: Tally, served: Served, pictures: list[tuple[str, bytes]], end: threading.Event) -> None:
    draw = random.Random(33)
    while not end.is_set():
        name = draw.choice(list(REQUESTS))
        status, body, _ = _exchange(served.port, REQUESTS[name](draw, pictures), draw)
        tally.check(
            status is None or status < 500 or status == 503, f"{name}: {status} {body[:200]}", "hostile request refused"
        )
        if status == 201:
            served.enrolled.update(re.findall(r'"name":"(person \d+)"', body))
        end.wait(PAUSE)


def _never_read(served: Served, end: threading.Event) -> None:
    links: list[socket.socket] = []
    request = _request("/", method="GET", key=None).replace(b"Connection: close\r\n", b"")
    while not end.is_set():
        with contextlib.suppress(OSError):
            links.append(socket.create_connection(("127.0.0.1", served.port), timeout=5))
            links[-1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            links[-1].sendall(request * 100)
        if len(links) > 80:
            links.pop(0).close()
        end.wait(PAUSE)
    for link in links:
        link.close()


def _send_expensive(served: Served, end: threading.Event) -> None:
    form = _form([('name="image"; filename="a.jpg"', many_scans(990, 50))])
    draw = random.Random(34)
    while not end.is_set():
        _exchange(served.port, (_request("/v1/embeddings", form, kind=FORM), True, 0.0), draw)
        end.wait(PAUSE)


def _hold_lock(path: pathlib.Path, end: threading.Event) -> None:
    while not end.is_set():
        if path.exists():
            with (
                contextlib.suppress(sqlite3.Error),
                contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db,
            ):
                db.execute("BEGIN IMMEDIATE")
                end.wait(1)
                db.execute("ROLLBACK")
        end.wait(2)
