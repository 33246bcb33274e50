import math

import pytest
import torch

from hypersphere import models
from hypersphere.config import as_call, assign, call
from hypersphere.data import InMemory, PythonDocs
from hypersphere.energy import MHE
from hypersphere.training import Config, LanguageModeling, Selection, build_task, replace
from tests.training.contracts import TaskContract

CONFIG = Config(
    task=call(LanguageModeling),
    monitor="-cross_entropy",
    batch_size=8,
    data=call(PythonDocs, context=12),
    samples=Selection(measured=50),
    backbone=call(models.NGPTLanguageModel, depth=1, dim=8, heads=2),
)


class TestNGPT(TaskContract):
    config = CONFIG


class TestGPTWithEnergy(TaskContract):
    config = replace(
        CONFIG, backbone=call(models.GPTLanguageModel, depth=1, dim=8, heads=2), energy=call(MHE, output=0.0)
    )


def test_typed_on_the_command_line():
    typed = ("task=LanguageModeling", "data=PythonDocs", "data.context=12", "backbone=NGPTLanguageModel")
    config = assign(as_call(Config()), [*typed, "backbone.depth=1", "backbone.dim=8", "backbone.heads=1"]).build()
    task = build_task(config)
    assert task.model.vocabulary == len(PythonDocs().classes)


def test_the_loss_is_the_mean_over_the_next_tokens():
    task = build_task(CONFIG).eval()
    windows, following = next(iter(task.loader))
    loss, _ = task(0, windows, following)
    log_p = task.model(windows.long()).double().log_softmax(-1)
    total = 0.0
    for row in range(len(windows)):
        text = [*windows[row].tolist(), int(following[row])]
        total -= sum(log_p[row, t, text[t + 1]].item() for t in range(len(text) - 1))
    assert loss.item() == pytest.approx(total / windows.numel(), rel=1e-5)


def test_measures_agree_and_a_step_returns_to_the_sphere():
    task = build_task(CONFIG).eval()
    with torch.no_grad():
        measured = task.evaluate()
    assert measured["bits_per_token"] == pytest.approx(measured["cross_entropy"] / math.log(2))
    assert measured["perplexity"] == pytest.approx(math.exp(measured["cross_entropy"]))
    assert measured["cross_entropy"] == pytest.approx(math.log(len(PythonDocs().classes)), rel=0.05)
    with torch.no_grad():
        task.model.output.weight.mul_(2)
    task.advance(1)
    assert torch.allclose(task.model.output.weight.norm(dim=1), torch.ones(1), atol=1e-5)


def test_it_writes_a_sample(tmp_path):
    task = build_task(CONFIG).eval()
    task.pictures(tmp_path)
    text = (tmp_path / "sample.txt").read_text()
    window = PythonDocs(False, context=12)
    assert len(text) == 5 * 12 + 1
    assert text[:12] in {window.read(row) for row in window.data}


def test_refuses_an_empty_batch():
    windows = InMemory(torch.zeros(4, 3, dtype=torch.uint8), torch.zeros(4, dtype=torch.long), ("a",))
    with pytest.raises(ValueError, match="batch_size must be an integer ≥ 1, got 0"):
        LanguageModeling(models.GPTLanguageModel(1, depth=1, dim=4, heads=1), windows, batch_size=0)
