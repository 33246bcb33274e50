import json
import os
import pathlib
import signal
import threading

import pytest
import torch
from torch import nn

from hypersphere.config import call
from hypersphere.energy import MHE
from hypersphere.objectives import ArcFace, RowSGD
from hypersphere.training import Experiment, LostProcessError, Settings, to_json
from hypersphere.training.processes import (
    broadcast_buffers,
    build_accelerator,
    catch_signals,
    explain_lost_process,
    gather_states,
    get_random_state,
    set_random_state,
    shard_heads,
    unshard_heads,
)
from tests.training.group import plain, run_group
from tests.training.runs import small
from tests.training.test_distributed import TOLERANCE, launch, losses


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_and_handlers_come_back(number):
    before = signal.getsignal(number)
    with catch_signals() as stop:
        assert not stop.is_set()
        os.kill(os.getpid(), number)
        assert stop.wait(1)
        assert signal.getsignal(number) == before  # so a second signal has its default effect
    assert signal.getsignal(number) == before


def test_other_threads_leave_signals_alone():
    found = []

    def work():
        with catch_signals() as stop:
            found.append(stop.is_set())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [False]


def test_random_states_come_back():
    state = get_random_state()
    first = torch.rand(3)
    set_random_state(state)
    assert torch.equal(torch.rand(3), first)


def test_precision_is_that_of_the_settings():
    for precision in ("no", "bf16"):
        made, _ = build_accelerator(Settings(precision=precision))
        assert made.mixed_precision == precision


@pytest.mark.skipif(torch.accelerator.is_available(), reason="there is a device on which fp16 works")
def test_fp16_is_refused_where_there_is_no_device_for_it():
    with pytest.raises(ValueError, match="precision must be no or bf16 on a CPU, got 'fp16'"):
        build_accelerator(Settings(precision="fp16"))


def test_a_failure_of_the_group_names_the_process_and_the_way_on(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "4")
    for error in (
        RuntimeError("[gloo/pair.cc:1] Connection closed by peer [::1]:7. Advice.\nmore"),
        torch.distributed.DistStoreError("late"),
    ):
        with (
            pytest.raises(
                LostProcessError,
                match=r"process 1 of 4 lost another one \((Connection closed by peer \[::1\]:7|late)\) at step 3; x",
            ) as lost,
            explain_lost_process(lambda: "at step 3; x"),
        ):
            raise error
        assert lost.value.__cause__ is error
    with pytest.raises(RuntimeError, match="shapes"), explain_lost_process(lambda: "never asked"):
        raise RuntimeError("shapes do not fit")


def _statistics(group):
    net = torch.nn.BatchNorm1d(2)
    net(torch.full((4, 2), float(torch.distributed.get_rank(group))))
    if torch.distributed.get_world_size(group) == torch.distributed.get_world_size():
        broadcast_buffers(net)
    return net.running_mean.tolist()


def test_buffers_become_those_of_the_first_process(pool):
    assert pool.run(_statistics, processes=3) == [[0.0, 0.0]] * 3
    assert pool.run(_statistics, processes=2) == [[0.0, 0.0], pytest.approx([0.1, 0.1])]  # no broadcast in a subgroup


@pytest.mark.slow
def test_two_processes_with_a_divided_and_drawn_head_give_the_losses_of_one(tmp_path: pathlib.Path) -> None:
    head = call(ArcFace, parallel=True, sample=0.5, sub_centers=2, scale=10.0)
    optimizer = call(RowSGD, lr=0.05, momentum=0.9, weight_decay=5e-4)
    options = {"evaluate_every": 12, "checkpoint_every": 6, "pictures": False}
    config = small({"backbone.norm": "none"}, steps=12, head=head, optimizer=optimizer, energy=None, **options)
    Experiment(config, tmp_path / "one").run()
    (tmp_path / "config.json").write_text(to_json(config))
    launch(tmp_path, 2, "two")
    assert losses(tmp_path / "two") == pytest.approx(losses(tmp_path / "one"), rel=TOLERANCE)
    found = [json.loads((tmp_path / name / "metrics.json").read_text())["accuracy"] for name in ("one", "two")]
    assert found[1] == pytest.approx(found[0], abs=1.0)
    launch(tmp_path, 2, "elastic", stop=6)
    Experiment(config, tmp_path / "elastic").run()
    assert losses(tmp_path / "elastic") == pytest.approx(losses(tmp_path / "one"), rel=TOLERANCE)


def test_one_process_has_nothing_to_divide() -> None:
    net = nn.Sequential(ArcFace(4, 5, parallel=True))
    shard_heads(net, torch.device("cpu"), 1)
    unshard_heads(net)
    assert net[0].shards is None
    states = {"task": net.state_dict()}
    assert gather_states(net, states) is states


@pytest.mark.parametrize("processes", [2, 3])
def test_divided_sphereface_plus_with_clipping_trains_as_one_process(processes: int, tmp_path: pathlib.Path) -> None:
    settings = Settings(steps=3, evaluate_every=3, checkpoint_every=3, log_every=1, threads=1, pictures=False)
    assert run_group(1, plain, settings, tmp_path / "one", plus=True)[0] == [0]
    assert run_group(processes, plain, settings, tmp_path / "run", plus=True, shards=True)[0] == [0] * processes
    texts = [(tmp_path / name / "log.jsonl").read_text() for name in ("one", "run")]
    rows = [[json.loads(line) for line in text.splitlines()] for text in texts]
    assert {"objective", "hidden", "output"} < rows[0][1].keys()
    assert "energy/classifier" in rows[0][-1]
    for one, run in zip(*rows, strict=True):
        assert run == pytest.approx(one, rel=TOLERANCE, abs=2e-5)


def test_a_head_that_is_divided_drawn_and_regularised_is_refused() -> None:
    net = nn.Sequential(nn.Linear(3, 4), ArcFace(4, 5, parallel=True, sample=0.5))
    task = nn.ModuleList([net, MHE(net)])
    with pytest.raises(
        ValueError, match=r"sample must be none for a sharded head whose classes are regularized \(MHE\)"
    ):
        shard_heads(task, torch.device("cpu"), 2)
