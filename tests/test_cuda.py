"""The four parts compute the same on a GPU as on the CPU.

``HYPERSPHERE_TEST_DEVICE`` names another device, such as ``mps``; without a device the tests are skipped.
"""

import os

import pytest
import torch
from torch import nn

import hypersphere as hs
from hypersphere.energy import hyperspherical_energy
from hypersphere.operators import TanhConv2d
from hypersphere.orthogonal import cayley

DEVICE = os.environ.get("HYPERSPHERE_TEST_DEVICE", "cuda")


def is_available():
    try:
        torch.zeros(1, device=DEVICE)
    except (RuntimeError, AssertionError):
        return False
    return True


pytestmark = pytest.mark.skipif(not is_available(), reason=f"there is no device {DEVICE}")


def run_on(device, module, *inputs):
    """Return the output and all gradients of a module on a device, as CPU tensors."""
    module = module.to(device)
    inputs = [x.detach().to(device).requires_grad_(x.is_floating_point()) for x in inputs]
    output = module(*inputs)
    output.square().sum().backward()
    found = [output, *(p.grad for p in module.parameters()), *(x.grad for x in inputs if x.requires_grad)]
    return [x.detach().cpu() for x in found if x is not None]


def check_equal(make, *inputs):
    results = []
    for device in ("cpu", DEVICE):
        torch.manual_seed(0)
        results.append(run_on(device, make(), *inputs))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("head", [hs.Softmax, hs.ArcFace, hs.CosFace, hs.SphereFace2, hs.AdaFace])
@pytest.mark.parametrize("chunk", [None, 7])
def test_heads(head, chunk):
    features, labels = torch.randn(16, 8, generator=torch.Generator().manual_seed(1)), torch.arange(16) % 20
    check_equal(lambda: head(8, 20, chunk=chunk), features, labels)


def test_operators():
    check_equal(lambda: TanhConv2d(3, 8, 3), torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1)))


def test_energy():
    weight = torch.randn(40, 8, generator=torch.Generator().manual_seed(1))
    one, other = (hyperspherical_energy(weight.to(device)).cpu() for device in ("cpu", DEVICE))
    torch.testing.assert_close(one, other)


@pytest.mark.parametrize("method", ["cayley", "householder", "gram_schmidt", "exponential"])
def test_orthogonal_training(method):
    def make():
        return hs.overparameterize(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)), method)

    check_equal(make, torch.randn(4, 8, generator=torch.Generator().manual_seed(1)))


def test_maps():
    x = torch.randn(3, 8, 8, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(cayley(x), cayley(x.to(DEVICE)).cpu(), rtol=1e-4, atol=1e-5)


def test_a_gallery_takes_features_from_the_device():
    features = torch.randn(5, 16, generator=torch.Generator().manual_seed(1))
    with hs.Gallery(":memory:") as gallery:
        gallery.enrol([str(i) for i in range(5)], features.to(DEVICE).cpu())
        assert [answer.name for answer in gallery.identify(features, threshold=0.9)] == list("01234")
