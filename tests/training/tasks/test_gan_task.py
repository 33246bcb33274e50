import pytest
import torch
from torch.nn import functional as F

from hypersphere import models
from hypersphere.config import call
from hypersphere.energy import MHE
from hypersphere.training import GAN, Config, build_task, replace
from tests.training.contracts import TaskContract

CONFIG = Config(
    task=call(GAN, samples=60, components=10),
    monitor="-frechet",
    batch_size=16,
    normalize="unit",
    backbone=call(models.Players, width=0.05, latent_dim=8),
    energy=call(MHE, output=0.0),
)


class TestGAN(TaskContract):
    config = CONFIG


class TestGANWithSpectralNorm(TaskContract):
    config = replace(CONFIG, {"backbone.spectral_norm": True})


def gradients(task, step):
    task.zero_grad(set_to_none=True)
    task(step, *next(iter(task.loader)))[0].backward()
    return {name for name, parameter in task.model.named_parameters() if parameter.grad is not None}


def test_players_take_turns():
    task = build_task(CONFIG).train()
    names = {name for name, _ in task.model.named_parameters()}
    assert gradients(task, 0) == {name for name in names if name.startswith("discriminator")}
    assert gradients(task, 1) == {name for name in names if name.startswith("generator")}
    patient = build_task(replace(CONFIG, {"task.turns": 2})).train()
    turns = ["generator.dense.weight" in gradients(patient, step) for step in range(6)]
    assert turns == [False, False, True, False, False, True]


def test_the_losses_are_those_of_the_dissertation():
    task = build_task(replace(CONFIG, energy=None)).train()
    images = next(iter(task.loader))[0]
    torch.manual_seed(3)
    loss = task(0, images, torch.zeros(16).long())[0]
    torch.manual_seed(3)
    made = task.model.generator(torch.randn(16, 8)).detach()
    real, fake = task.model.discriminator(2 * images - 1).sigmoid(), task.model.discriminator(made).sigmoid()
    torch.testing.assert_close(loss, -(real.log().mean() + (1 - fake).log().mean()))
    torch.manual_seed(3)
    loss = task(1, images, torch.zeros(16).long())[0]
    torch.testing.assert_close(loss, F.binary_cross_entropy(fake, torch.ones_like(fake)))


def test_the_energy_is_the_discriminators():
    plain, task = build_task(replace(CONFIG, energy=None)).train(), build_task(CONFIG).train()
    plain.load_state_dict(task.state_dict(), strict=False)
    batch = next(iter(task.loader))
    torch.manual_seed(0)
    loss, parts = task(0, *batch)
    torch.manual_seed(0)
    torch.testing.assert_close(loss - parts["hidden"], plain(0, *batch)[0])
    assert parts["hidden"] > 0
    assert "hidden" not in task(1, *batch)[1]
    assert all(name.startswith("energy/") and "generator" not in name for name in task.measures())


def test_the_distance_is_zero_for_the_images_themselves(monkeypatch):
    task = build_task(CONFIG).eval()
    with torch.no_grad():
        assert task.evaluate()["frechet"] > 1
        monkeypatch.setattr(task, "generate", lambda count: task.shown(task.measured[:count]))
        assert task.evaluate()["frechet"] == pytest.approx(0, abs=1e-6)
        components = task.project(task.shown(task.measured))
    off_diagonal = torch.cov(components.T) - torch.cov(components.T).diag().diag()
    torch.testing.assert_close(off_diagonal, torch.zeros(10, 10), atol=1e-3, rtol=0)


def test_shares_of_latent_vectors_are_those_of_one_process():
    task = build_task(CONFIG)
    torch.manual_seed(0)
    whole = task.latent(6)
    parts = []
    for rank in range(2):
        task.loader._rank, task.loader._world_size = rank, 2
        torch.manual_seed(0)
        parts.append(task.latent(3))
    assert torch.equal(torch.stack(parts, 1).flatten(0, 1), whole)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"normalize": "deviation"},
            r"inputs must lie in \[0, 1\] for the task GAN: set normalize=unit",
        ),
        ({"task.turns": 0}, "turns, samples and components must be integers ≥ 1, got 0"),
    ],
)
def test_refuses(change, message):
    with pytest.raises(ValueError, match=message):
        build_task(replace(CONFIG, **change))
