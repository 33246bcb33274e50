import copy

import pytest
import torch

from hypersphere.geometry import PowerSpherical, VonMisesFisher
from hypersphere.models import SphericalAutoencoder


def small(**options):
    return SphericalAutoencoder(1, 8, **{"latent_dim": 4, "widths": (4, 8), **options})


@pytest.mark.parametrize(("name", "kind"), [("power_spherical", PowerSpherical), ("von_mises_fisher", VonMisesFisher)])
def test_the_posterior_is_the_named_distribution(name, kind):
    model, images = small(posterior=name), torch.rand(6, 1, 8, 8)
    posterior = model.posterior(images)
    assert isinstance(posterior, kind)
    assert posterior.concentration.shape == (6,)
    assert posterior.concentration.min() > 1
    assert torch.allclose(posterior.mean.norm(dim=1), torch.ones(6), atol=1e-5)
    loss = model.decode(posterior.sample()).square().mean() + posterior.divergence_from_uniform().mean()
    loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    assert model.concentration.weight.grad.any()


def test_reconstructions_are_those_of_the_mean_directions():
    model, images = small().eval(), torch.rand(3, 1, 8, 8)
    assert model.features(images).shape == (3, 4)
    torch.testing.assert_close(model(images), model.decode(model.posterior(images).mean).sigmoid())
    assert torch.equal(copy.deepcopy(model)(images), model(images))


def test_maps_that_are_not_square():
    model = SphericalAutoencoder(3, (8, 12), latent_dim=3, widths=(4, 4))
    assert model.decode(model.features(torch.rand(2, 3, 8, 12))).shape == (2, 3, 8, 12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"input_size": 10}, "input_size must be a multiple of 4 in both directions, got 10×10"),
        ({"posterior": "normal"}, "posterior must be one of power_spherical, von_mises_fisher, got 'normal'"),
        ({"latent_dim": 1}, "latent_dim must be an integer ≥ 2"),
        ({"widths": ()}, "widths integers ≥ 1"),
    ],
)
@pytest.mark.untyped
def test_refuses(options, message):
    with pytest.raises(ValueError, match=message):
        SphericalAutoencoder(1, **{"input_size": 8, "widths": (4, 8), **options})
