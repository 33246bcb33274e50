"""Two processes have the same losses as one with the same total batch size. A run can resume on another number."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import pytest

from hypersphere.data import Digits
from hypersphere.files import load_tree
from hypersphere.training import Experiment, to_json
from tests.training.runs import small

# 64 terms are summed in another order over 12 steps with momentum, so losses near 4 differ by rounding errors.
TOLERANCE = 2e-5

SCRIPT = """
import os, signal, sys
from hypersphere.training import Classification, Experiment, from_json
stop = int(sys.argv[3])
plain, seen = Classification.embed_batch, []
def counted(self, raw):
    seen.append(len(raw))
    return plain(self, raw)
Classification.embed_batch = counted
def progress(step, row):
    if step == stop:
        os.kill(os.getpid(), signal.SIGINT)
try:
    Experiment(from_json(open(sys.argv[1]).read()), sys.argv[2]).run(progress)
except KeyboardInterrupt:
    pass
open(f"{sys.argv[2]}-seen-{os.environ['RANK']}", "w").write(str(sum(seen)))
"""


def launch(folder: pathlib.Path, processes: int, run: str, stop: int = -1) -> None:
    (folder / "script.py").write_text(SCRIPT)
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    command = [sys.executable, *launcher, "script.py", "config.json", run, str(stop)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    options = {"cwd": folder, "env": environment, "capture_output": True, "text": True, "timeout": 300, "check": False}
    done = subprocess.run(command, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stderr[-2000:]


def launch_two(folder: pathlib.Path, *command: str) -> list["subprocess.Popen[bytes]"]:
    """Start two launchers with one process each. They connect over loopback, like two machines."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = str(found.getsockname()[1])
    meet = ["--nnodes", "2", "--nproc-per-node", "1", "--master-addr", "127.0.0.1", "--master-port", port]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    line = [sys.executable, "-m", "torch.distributed.run", *meet]
    launchers = []
    for node in range(2):
        with open(folder / f"said-{node}", "w", encoding="utf-8") as said:
            place = {"cwd": folder, "env": environment, "stdout": said, "stderr": subprocess.STDOUT}
            launchers.append(subprocess.Popen([*line, "--node-rank", str(node), *command], **place))  # type: ignore[call-overload]
    return launchers


def losses(folder: pathlib.Path) -> list[float]:
    rows = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [row["loss"] for row in rows if "loss" in row]


def test_two_processes_give_the_losses_of_one_and_go_on_as_one(tmp_path: pathlib.Path) -> None:
    # Without batch normalization, whose statistics would come from half a batch.
    config = small({"backbone.norm": "none"}, steps=12, evaluate_every=12, checkpoint_every=6, pictures=False)
    Experiment(config, tmp_path / "one").run()
    (tmp_path / "config.json").write_text(to_json(config))
    launch(tmp_path, 2, "two")
    assert losses(tmp_path / "two") == pytest.approx(losses(tmp_path / "one"), rel=TOLERANCE)
    assert len(losses(tmp_path / "one")) == 7
    accuracy = [json.loads((tmp_path / name / "metrics.json").read_text())["accuracy"] for name in ("one", "two")]
    assert accuracy[1] == pytest.approx(accuracy[0], abs=1.0)
    seen = [int((tmp_path / f"two-seen-{rank}").read_text()) for rank in range(2)]
    samples = len(Digits(train=False))
    assert seen[1] == 2 * (samples // 2)  # two evaluations; this process embeds half of the samples
    assert seen[0] - seen[1] <= 10  # the first process also writes the embedder's comparison
    launch(tmp_path, 2, "elastic", stop=6)
    Experiment(config, tmp_path / "elastic").run()
    assert losses(tmp_path / "elastic") == pytest.approx(losses(tmp_path / "one"), rel=TOLERANCE)


@pytest.mark.slow
def test_two_launchers_give_the_losses_of_one_process(tmp_path: pathlib.Path) -> None:
    config = small({"backbone.norm": "none"}, steps=12, evaluate_every=12, checkpoint_every=6, pictures=False)
    Experiment(config, tmp_path / "one").run()
    (tmp_path / "config.json").write_text(to_json(config))
    (tmp_path / "script.py").write_text(SCRIPT)
    for node, launcher in enumerate(launch_two(tmp_path, "script.py", "config.json", "two", "-1")):
        assert launcher.wait(300) == 0, (tmp_path / f"said-{node}").read_text()[-2000:]
    assert losses(tmp_path / "two") == pytest.approx(losses(tmp_path / "one"), rel=TOLERANCE)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "silent"])
def test_a_lost_machine_ends_the_other_with_the_line_that_goes_on(
    number: signal.Signals, tmp_path: pathlib.Path
) -> None:
    train = ["-m", "hypersphere.cli.main", "train"]
    options = ["checkpoint_every=5", "evaluate_every=100000", "timeout=25", "threads=1"]
    launchers = launch_two(tmp_path, *train, "opt-mlp-mnist", "--size", "smoke", "steps=100000", "-o", "run", *options)
    last, limit = tmp_path / "run" / "last.safetensors", time.monotonic() + 200
    try:
        while not (last.exists() and load_tree(last)["step"] >= 5):
            assert time.monotonic() < limit
            time.sleep(0.5)
        children = pathlib.Path(f"/proc/{launchers[1].pid}/task/{launchers[1].pid}/children").read_text().split()
        workers = [
            pid for pid in children if b"hypersphere.cli.main" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
        ]
        assert len(workers) == 1
        os.kill(int(workers[0]), number)
        assert launchers[0].wait(100) != 0
    finally:
        for launcher in launchers:
            launcher.terminate()
            launcher.wait(60)
    kept, said = load_tree(last)["step"], " ".join((tmp_path / "said-0").read_text().split())
    assert "hypersphere train: process 0 of 2 lost another one (" in said
    assert f"; run goes on from step {kept} on any number of processes: hypersphere train --resume run" in said
