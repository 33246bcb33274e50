import os
import signal
import threading

import pytest
import torch

from hypersphere.training import Settings
from hypersphere.training.processes import accelerator, random_state, set_random_state, signals


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
