"""Several writers at once: two trainers of one folder, and several writers and a reader of one gallery."""

import os
import pathlib
import random
import shutil
import tempfile
import time
from collections.abc import Iterator

import torch

from . import tally as rows
from .killed_training import _config, _differing, _forked, _run, _train, _warm
from .tally import Tally

TRAINERS, GALLERIES = 24, 20


def attack(scale: float) -> Iterator[Tally]:
    """Yield a tally for folders and one for galleries."""
    config = _config()
    _warm(config)
    if rows.due("concurrent writers", "two trainers, one folder"):
        yield _trainers(Tally("concurrent writers", "two trainers, one folder"), round(scale * TRAINERS), config)
    if rows.due("concurrent writers", "four writers, one gallery"):
        yield _galleries(Tally("concurrent writers", "four writers, one gallery"), round(scale * GALLERIES))


def _trainers(tally: Tally, count: int, config: object) -> Tally:
    draw = random.Random(51)
    with tempfile.TemporaryDirectory() as folder:
        whole = pathlib.Path(folder) / "whole"
        _run(config, whole, 1, None)
        for number in range(count):
            run = pathlib.Path(folder) / str(number)
            pids = []
            for _ in range(2):
                pids.append(_forked(lambda run=run: _train(config, run, 0, 1, 0)))
                time.sleep(draw.uniform(0, 0.1))
            ended = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
            differing = _differing(whole, run) if 0 in ended else f"both ended with {ended}"
            tally.check(
                not differing, f"two trainers: {ended} {differing}", "one trained, the other was refused or resumed"
            )
            shutil.rmtree(run, ignore_errors=True)
    return tally


def _galleries(tally: Tally, count: int) -> Tally:
    from hypersphere.recognition import Gallery

    with tempfile.TemporaryDirectory() as folder:
        for number in range(count):
            address = f"{folder}/{number}.db"
            pids = [_forked(lambda who=who, at=address: _enrol(at, who)) for who in range(4)]
            ended = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
            with Gallery(address, create=False) as gallery:
                counts, problems = gallery.list(), gallery.check()
            right = {f"{who} {i}": 2 for who in range(4) for i in range(6)} | {"shared": 24}
            good = ended == [0] * 4 and counts == right and not problems
            tally.check(good, f"four writers: {ended} {problems} {counts}", "all enrollments are present")
    return tally


def _enrol(address: str, who: int) -> None:
    from hypersphere.recognition import Gallery

    torch.set_num_threads(1)
    with Gallery(address) as gallery:
        for i in range(6):
            gallery.enrol(f"{who} {i}", torch.full((2, 16), 1.0 + i))
            gallery.enrol("shared", torch.randn(1, 16), [f"{who} {i}.png"])
