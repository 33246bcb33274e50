import math

import pytest
import torch

from hypersphere import models
from hypersphere.config import as_call, assign, call
from hypersphere.energy import MHE
from hypersphere.geometry import uniform
from hypersphere.training import Config, SphericalVAE, build_task, replace
from tests.training.contracts import TaskContract

CONFIG = Config(
    task=call(SphericalVAE, samples=20, draws=3),
    monitor="-negative_elbo",
    batch_size=8,
    normalize="unit",
    backbone=call(models.SphericalAutoencoder, latent_dim=3, widths=(2, 4)),
)


class TestSphericalVAE(TaskContract):
    config = CONFIG


class TestVonMisesFisherWithEnergy(TaskContract):
    config = replace(CONFIG, {"backbone.posterior": "von_mises_fisher", "energy": call(MHE, output=0.0)})


def test_typed_on_the_command_line():
    typed = ("task=SphericalVAE", "backbone=SphericalAutoencoder", "backbone.latent_dim=5", "normalize=unit")
    task = build_task(assign(as_call(Config()), typed).build())
    assert task.model.latent_dim == 5


def test_the_parts_of_the_loss():
    task = build_task(replace(CONFIG, {"task.beta": 0.5})).eval()
    images = next(iter(task.loader))[0]
    torch.manual_seed(0)
    loss, parts = task(0, images)
    torch.manual_seed(0)
    posterior = task.model.posterior(images)
    p = task.model.decode(posterior.sample()).sigmoid().double()
    bernoulli = -(images * p.log() + (1 - images) * (1 - p).log()).flatten(1).sum(1).mean()
    divergence = (math.log(4 * math.pi) - posterior.entropy()).mean()
    assert parts["reconstruction"].item() == pytest.approx(bernoulli.item(), rel=1e-4)
    assert parts["divergence"].item() == pytest.approx(0.5 * divergence.item(), rel=1e-4)
    assert loss.item() == pytest.approx(sum(part.item() for part in parts.values()), rel=1e-6)


def test_the_log_likelihood_by_integration_over_the_sphere():
    """p(x) = E p(x|z) for uniform z. Importance sampling agrees with it, and the bound is lower."""
    task = build_task(replace(CONFIG, {"task.draws": 1000, "backbone.posterior": "von_mises_fisher"})).eval()
    images = task.measured[:3]
    with torch.no_grad():
        codes = uniform(5000, 3, generator=torch.Generator().manual_seed(0))
        exact = []
        for image in images:
            logits = task.model.decode(codes).double()
            log_p = -(torch.nn.functional.softplus(logits) - image * logits).flatten(1).sum(1)
            exact.append(torch.logsumexp(log_p, 0) - math.log(len(codes)))
        found = task.estimate_log_likelihood(images, torch.Generator().manual_seed(1))
        task.draws = 10
    torch.testing.assert_close(found, torch.stack(exact), atol=0.1, rtol=0)
    with torch.no_grad():
        measured = task.evaluate()
    assert measured["log_likelihood"] > -measured["negative_elbo"]
    assert measured["negative_elbo"] == pytest.approx(measured["reconstruction"] + measured["divergence"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"normalize": "deviation"}, r"inputs must lie in \[0, 1\] for the task SphericalVAE: set normalize=unit"),
        ({"task.beta": -1.0}, "beta must be a finite number ≥ 0, got -1"),
        ({"task.draws": 0}, "samples, draws and batch_size must be integers ≥ 1"),
    ],
)
def test_refuses(change, message):
    with pytest.raises(ValueError, match=message):
        build_task(replace(CONFIG, change))
