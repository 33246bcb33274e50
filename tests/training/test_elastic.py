"""A run resumes three times on another number of processes. Another run loses a process at any moment."""

import json
import pathlib
import signal
from typing import Any

import pytest

from hypersphere.files import load_tree
from hypersphere.training import Settings
from tests.training.group import LOST, Death, own, plain, run_group
from tests.training.test_distributed import losses
from tests.training.test_kill import same

SETTINGS = Settings(
    steps=8, evaluate_every=4, checkpoint_every=2, log_every=1, threads=1, pictures=False, timeout=20, keep=1
)
# 12 terms are summed in another order over 8 steps with momentum.
TOLERANCE = 1e-5

HEADS = {
    "whole": {},
    "divided": {"shards": True},
    "divided and drawn": {"shards": True, "sample": 0.5},
    "divided SphereFace+, clipped": {"shards": True, "plus": True},
}


@pytest.mark.parametrize(
    "options", [pytest.param(o, id=name, marks=pytest.mark.slow if o else ()) for name, o in HEADS.items()]
)
def test_three_processes_then_two_then_one_then_two(options: dict[str, Any], tmp_path: pathlib.Path) -> None:
    assert run_group(1, plain, SETTINGS, tmp_path / "one", **options)[0] == [0]
    for count, stop, batch in ((3, 2, "4"), (2, 3, "6"), (1, 5, "12"), (2, None, "6")):
        codes, _ = run_group(count, plain, SETTINGS, tmp_path / "run", stop=stop, **options)
        assert codes == [0] * count
        assert [(tmp_path / f"run-seen-{rank}").read_text() for rank in range(count)] == [batch] * count
        assert stop is None or load_tree(tmp_path / "run" / "last.safetensors")["step"] == stop
    found = losses(tmp_path / "run")
    assert len(found) == 8
    assert found == pytest.approx(losses(tmp_path / "one"), rel=TOLERANCE)
    one, run = (json.loads((tmp_path / name / "metrics.json").read_text()) for name in ("one", "run"))
    assert run == pytest.approx(one, rel=TOLERANCE, abs=2e-5)  # angles near 0 are less accurate than losses


def test_one_process_that_stops_goes_on_bit_for_bit(tmp_path: pathlib.Path) -> None:
    run_group(1, plain, SETTINGS, tmp_path / "one")
    run_group(1, plain, SETTINGS, tmp_path / "run", stop=3)
    assert run_group(1, plain, SETTINGS, tmp_path / "run")[0] == [0]
    same(tmp_path / "one", tmp_path / "run")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    assert run_group(2, own, SETTINGS, folder)[0] == [0, 0]
    return folder


MOMENTS = [
    Death(1, "advance", 3),
    Death(0, "start"),
    Death(1, "start"),
    Death(1, "made"),
    Death(0, "evaluate", 1),
    Death(0, "write", 2),
    Death(0, "advance", 5),
    Death(1, "embed_batch", 2),
    Death(0, "write", 5),
    Death(0, "write_embedder"),
    Death(1, "eval"),
]


@pytest.mark.parametrize(
    "death",
    [
        pytest.param(d, id=f"{d.rank}-{d.where}-{d.count}", marks=pytest.mark.slow if i else ())
        for i, d in enumerate(MOMENTS)
    ],
)
def test_a_killed_process_ends_the_other_and_loses_nothing(
    death: Death, undisturbed: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    run, other = tmp_path / "run", 1 - death.rank
    codes, seconds = run_group(2, own, SETTINGS, run, death=death)
    assert codes[death.rank] == -signal.SIGKILL
    assert codes[other] == LOST
    assert seconds < 100
    said = (tmp_path / f"run-said-{other}").read_text()
    assert said.startswith(f"process {other} of 2 lost another one (")
    kept = load_tree(run / "last.safetensors")["step"] if (run / "last.safetensors").exists() else None
    assert (
        "before anything was saved" in said if kept is None else f"{run} goes on from step {kept} on any number" in said
    )
    made = max((row["step"] for row in map(json.loads, _lines(run / "log.jsonl"))), default=0)
    assert kept is None or kept >= (made - 1) // SETTINGS.checkpoint_every * SETTINGS.checkpoint_every
    assert run_group(2, own, SETTINGS, run)[0] == [0, 0]
    events = [json.loads(line) for line in _lines(run / "events.jsonl")]
    assert [e["step"] for e in events if e["event"] == "resume"] == ([] if kept is None else [kept])
    same(undisturbed, run)


@pytest.mark.slow
def test_a_process_that_stands_still_ends_the_other_after_the_timeout(
    undisturbed: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    death = Death(1, "advance", 3, signal.SIGSTOP)
    codes, seconds = run_group(2, own, SETTINGS, tmp_path / "run", death=death)
    assert codes == [LOST, None]
    assert SETTINGS.timeout <= seconds < SETTINGS.timeout + 60
    assert "at step 3; " in (tmp_path / "run-said-0").read_text()
    assert run_group(2, own, SETTINGS.replace(timeout=60), tmp_path / "run")[0] == [0, 0]
    same(undisturbed, tmp_path / "run")


def _lines(path: pathlib.Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []
