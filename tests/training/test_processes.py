import os
import signal
import threading

import pytest
import torch

from hypersphere.training import LostProcessError, Settings
from hypersphere.training.processes import (
    accelerator,
    random_state,
    set_random_state,
    share_buffers,
    signals,
    together,
)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_and_handlers_come_back(number):
    before = signal.getsignal(number)
    with signals() as stop:
        assert not stop.is_set()
        os.kill(os.getpid(), number)
        assert stop.wait(1)
        assert signal.getsignal(number) == before  # a second one acts as it did
    assert signal.getsignal(number) == before


def test_other_threads_leave_signals_alone():
    found = []

    def work():
        with signals() as stop:
            found.append(stop.is_set())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [False]


def test_random_states_come_back():
    state = random_state()
    first = torch.rand(3)
    set_random_state(state)
    assert torch.equal(torch.rand(3), first)


def test_precision_is_that_of_the_settings():
    for precision in ("no", "bf16"):
        made, _ = accelerator(Settings(precision=precision))
        assert made.mixed_precision == precision


@pytest.mark.skipif(torch.accelerator.is_available(), reason="there is a device on which fp16 works")
def test_fp16_is_refused_where_there_is_no_device_for_it():
    with pytest.raises(ValueError, match="precision must be no or bf16 on a CPU, got 'fp16'"):
        accelerator(Settings(precision="fp16"))


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
            together(lambda: "at step 3; x"),
        ):
            raise error
        assert lost.value.__cause__ is error
    with pytest.raises(RuntimeError, match="shapes"), together(lambda: "never asked"):
        raise RuntimeError("shapes do not fit")


def _statistics(group):
    net = torch.nn.BatchNorm1d(2)
    net(torch.full((4, 2), float(torch.distributed.get_rank(group))))
    if torch.distributed.get_world_size(group) == torch.distributed.get_world_size():
        share_buffers(net)
    return net.running_mean.tolist()


def test_buffers_become_those_of_the_first_process(pool):
    assert pool.run(_statistics, processes=3) == [[0.0, 0.0]] * 3
    assert pool.run(_statistics, processes=2) == [[0.0, 0.0], pytest.approx([0.1, 0.1])]  # as they would be without
