"""Attack bookkeeping: crashed workers are detected, rows are replaced, and the page matches the rows."""

import os
import pathlib
import signal
import subprocess
import sys

import pytest

from tests.attack import children, tally
from tests.attack.__main__ import KINDS
from tests.attack.fuzzed_images import _damaged, _originals
from tests.attack.reliability_page import PAGE, PROMISES, TITLES, format_page

ROOT = pathlib.Path(__file__).parents[2]


def test_the_page_is_that_of_the_rows():
    rows = tally.read()
    assert {row["kind"] for row in rows} == TITLES.keys() == PROMISES.keys()
    assert PAGE.read_text(encoding="utf-8") == format_page(rows)


def test_every_aim_is_reached_and_nothing_failed():
    rows = tally.read()
    tried = {kind: sum(row["tried"] for row in rows if row["kind"] == kind) for kind in TITLES}
    aims = {"kills of training": 200, "kills of galleries": 200, "images": 20_000, "numerics": 8_000}
    assert all(tried[kind] >= aim for kind, aim in aims.items())
    assert tried["settings"] + tried["config files"] >= 5_000
    assert all(row["tried"] >= 500 for row in rows if row["kind"] == "bit flips")
    assert {"checkpoint", "embedder", "model", "features", "gallery", "adapters"} <= {row["part"] for row in rows}
    assert [row["failures"] for row in rows if row["failed"]] == []


def answer(case):
    if case == "dies":
        os.kill(os.getpid(), signal.SIGSEGV)
    if case == "hangs":
        while True:
            pass
    if case == "exits":
        os._exit(3)
    return {"said": case}


def test_a_case_that_takes_its_worker_with_it_is_named():
    found = list(children.each(["a", "dies", "b", "hangs", "exits", "c"], answer, cpu=0.3))
    assert [case for case, _ in found] == ["a", "dies", "b", "hangs", "exits", "c"]
    assert [one.get("died") for _, one in found] == [None, "SIGSEGV", None, "SIGPROF", "status 3", None]


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ({"status": 0, "err": "", "traceback": ""}, None),
        ({"status": 1, "err": "hypersphere train: no", "traceback": ""}, None),
        ({"status": 1, "err": "", "traceback": ""}, "status 1 without a word"),
        ({"status": 7, "err": "x", "traceback": ""}, "status 7"),
        ({"status": None, "err": "", "traceback": "KeyError: 3"}, "KeyError: 3"),
        ({"died": "SIGSEGV"}, "died: SIGSEGV"),
    ],
)
def test_what_counts_as_a_sentence(given, wrong):
    assert children.sentence(given) == wrong


def test_a_row_takes_the_place_of_its_own_kind_and_part(tmp_path):
    path = tmp_path / "rows.jsonl"
    for part, good in (("a", False), ("b", True), ("a", True)):
        one = tally.Tally("kind", part)
        one.check(good, "it broke")
        tally.keep(one.row(), path)
    assert [(row["part"], row["tried"], row["failed"]) for row in tally.read(path)] == [("b", 1, 0), ("a", 1, 0)]


def test_a_failure_is_on_the_page():
    one = tally.Tally("images", "fuzzed images")
    one.broke("picture 7: KeyError")
    one.held("decoded", 9)
    text = format_page([one.row()])
    assert "1 of 10 tries failed." in text
    assert "Failed in fuzzed images: `picture 7: KeyError`" in text


def test_damage_is_drawn_from_the_seed():
    import random

    originals = _originals()
    assert len(originals) > 20
    once, again = ([_damaged(random.Random(i), originals[i % 20][1]) for i in range(50)] for _ in range(2))
    assert once == again


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "service"])
def test_a_twentieth_of_the_attack_holds(kind):
    line = [sys.executable, "-W", "ignore", "-m", "tests.attack", kind, "--scale", "0.05"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(line, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=1500)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert " 0 failed" in done.stdout
