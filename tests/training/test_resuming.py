import pytest
import torch

from hypersphere.training import Callback, Settings
from hypersphere.training.resuming import restore, state_of
from tests.training.runs import own

FEW = Settings(steps=3, evaluate_every=3, ema=0.9, threads=1, pictures=False)


def test_a_state_is_everything(tmp_path):
    first = own(FEW, tmp_path / "first")
    first.run()
    second = own(FEW.replace(seed=0), tmp_path / "second")
    state = state_of(first)
    assert restore(second, state) == state["log"]
    assert (second.step, second.best, second.measured) == (3, first.best, first.measured)
    for one, other in zip(first.task.parameters(), second.task.parameters(), strict=True):
        assert torch.equal(one, other)
    assert torch.equal(torch.rand(2), (torch.set_rng_state(state["random"][0]["cpu"]), torch.rand(2))[1])


def test_another_number_of_callbacks_is_refused(tmp_path):
    trainer = own(FEW, tmp_path)
    state = state_of(trainer)
    trainer.callbacks.append(Callback())
    with pytest.raises(ValueError, match="callbacks must be those of the stored run, which has 0, got 1"):
        restore(trainer, state)


def test_another_number_of_processes_draws_anew_the_same_way(tmp_path):
    trainer = own(FEW, tmp_path)
    state = state_of(trainer)
    drawn = []
    for _ in range(2):
        restore(trainer, state | {"random": state["random"] * 2})
        drawn.append(torch.rand(2))
    assert torch.equal(*drawn)


def test_the_scale_of_fp16_is_kept(tmp_path):
    trainer = own(FEW, tmp_path)
    trainer.accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    state = state_of(trainer)
    trainer.accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    restore(trainer, state)
    assert trainer.accelerator.scaler.state_dict()["scale"] == 8.0
