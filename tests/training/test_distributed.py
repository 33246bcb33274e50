"""Two processes compute what one does: the same losses at the same global batch."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from hypersphere.experiments import Experiment, to_json
from tests.training.runs import small

# Sums of 64 terms in another order, through 12 steps of momentum: losses near 4 differ by rounding alone.
TOLERANCE = 2e-5

SCRIPT = """
import sys
from hypersphere.experiments import Experiment, from_json
Experiment(from_json(open(sys.argv[1]).read()), sys.argv[2]).run()
"""


def test_two_processes_give_the_losses_of_one(tmp_path: pathlib.Path) -> None:
    config = small(
        steps=12, model__norm="none", evaluate_every=12, checkpoint_every=6
    )  # batch statistics would be of half a batch
    Experiment(config, tmp_path / "one").run()
    (tmp_path / "config.json").write_text(to_json(config))
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        "script.py",
        "config.json",
        "two",
    ]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    one, two = (
        [json.loads(line) for line in (tmp_path / name / "log.jsonl").read_text().splitlines()]
        for name in ("one", "two")
    )
    assert [row["step"] for row in one] == [row["step"] for row in two]
    losses = [(a["loss"], b["loss"]) for a, b in zip(one, two, strict=True) if "loss" in a]
    assert len(losses) == 7
    for mine, theirs in losses:
        assert theirs == pytest.approx(mine, rel=TOLERANCE)
    assert two[-1]["accuracy"] == pytest.approx(one[-1]["accuracy"], abs=1.0)
