import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

from hypersphere.models import Autoencoder


@pytest.fixture(scope="module")
def trained():
    """Return an autoencoder of 8×8 digits after a few seconds of training, and digits outside the training set."""
    torch.manual_seed(0)
    images = torch.from_numpy(load_digits().images).float()[:, None] / 16
    images = images[torch.randperm(len(images))]
    net = Autoencoder(1, widths=(16, 32), code_channels=8)
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    for step in range(120):
        batch = images[200:][torch.arange(64 * step, 64 * step + 64) % (len(images) - 200)]
        optimizer.zero_grad()
        nn.functional.mse_loss(net(batch), batch).backward()
        optimizer.step()
    return net.eval(), images[:200]


@torch.no_grad()
def correlation(net, x, keep):
    """Return the correlation of the pixels of images and their reconstructions."""
    return np.corrcoef(net(x, keep).flatten(), x.flatten())[0, 1]


def test_angles_reconstruct_and_norms_do_not(trained):
    """Figure 1.1."""
    whole, angle, norm = (correlation(*trained, keep) for keep in ("product", "angle", "norm"))
    assert whole > 0.9
    assert angle > 0.85
    assert norm < 0.5


@pytest.mark.parametrize("shape", [(3, 2, 8, 12), (1, 2, 4, 4)])
def test_the_code_is_the_product_of_its_factors(shape):
    net, x = Autoencoder(2, widths=(4, 6), code_channels=5).double().eval(), torch.randn(shape, dtype=torch.float64)
    net.code.bias.data.zero_()
    maps = nn.functional.unfold(net.encoder(x), 3, padding=1)
    weight = net.code.weight.flatten(1)
    norm = weight.norm(dim=1)[:, None] * maps.norm(dim=1, keepdim=True)
    product = weight @ maps
    for keep, expected in (("product", product), ("norm", norm), ("angle", product / norm)):
        scaled = expected * (product.square().mean() / expected.square().mean()).sqrt()
        assert torch.allclose(net.encode(x, keep).flatten(2), scaled, atol=1e-12)


def test_reading_changes_nothing_and_gradients_flow():
    net, x = Autoencoder(1, widths=(4,), code_channels=3), torch.randn(2, 1, 4, 4)
    state = {name: value.clone() for name, value in net.eval().state_dict().items()}
    net(x, keep="norm").sum().backward()
    assert all(torch.equal(value, state[name]) for name, value in net.state_dict().items())
    assert net.code.weight.grad.any()


@pytest.mark.untyped
def test_refuses():
    net = Autoencoder(1, widths=(4, 4))
    with pytest.raises(ValueError, match="keep must be 'product', 'angle' or 'norm', got 'length'"):
        net.encode(torch.zeros(1, 1, 4, 4), keep="length")
    with pytest.raises(ValueError, match=r"height and width of images must be multiples of 4, got \(6, 4\)"):
        net(torch.zeros(1, 1, 6, 4))
    with pytest.raises(ValueError, match="widths and code_channels must be integers ≥ 1"):
        Autoencoder(widths=())
