import pytest
import torch

from hypersphere.energy import (
    MMD,
    FeatureEnergy,
    Gaussian,
    GlobalOrthogonalRegularization,
    Heat,
    KernelStein,
    Penalty,
    global_orthogonal_regularization,
    uniformity,
)
from hypersphere.energy.feature_energy import average_cosines
from hypersphere.geometry import uniform


def cosines(x):
    x = torch.stack([row / row.norm() for row in x.double()])
    return x @ x.T


@pytest.mark.parametrize("kernel", [None, Gaussian(2), Heat(), MMD(), KernelStein()], ids=repr)
def test_is_the_mean_of_the_kernel_over_pairs(kernel):
    x = torch.randn(7, 5, dtype=torch.float64, requires_grad=True)
    loss = FeatureEnergy(kernel)
    bound = loss.kernel.for_dimension(5)
    c = cosines(x.detach())
    expected = torch.stack([bound.value(2 - 2 * c[i, j]) for i in range(7) for j in range(7) if i != j]).mean()
    assert loss(x, torch.arange(7)).item() == pytest.approx(expected.item(), rel=1e-9)
    assert torch.autograd.gradcheck(loss, x)


def test_the_logarithm_of_the_gaussian_is_the_uniformity():
    x = torch.randn(9, 4)
    assert FeatureEnergy(Gaussian(2), log=True)(x).item() == pytest.approx(uniformity(x).item(), rel=1e-6)


@pytest.mark.parametrize(
    "loss", [FeatureEnergy(Heat()), GlobalOrthogonalRegularization()], ids=lambda loss: type(loss).__name__
)
def test_contract_of_a_uniformity_loss(loss):
    x = torch.randn(12, 6)
    assert torch.allclose(loss(5 * x), loss(x), rtol=1e-5)
    crowded = x.abs() + 1
    assert loss(crowded) > loss(x)
    for few in (x[:1], x[:0]):
        few = few.clone().requires_grad_()
        value = loss(few)
        value.backward()
        assert value == 0
        assert (few.grad == 0).all()
    half = x.to(torch.bfloat16).requires_grad_()
    value = loss(half)
    value.backward()
    assert (value.dtype, half.grad.dtype) == (torch.float32, torch.bfloat16)
    assert torch.isfinite(loss(torch.cat([x, x, torch.zeros(2, 6)])))


@pytest.mark.parametrize("labeled", [False, True])
def test_regularization_by_loops(labeled):
    x = torch.randn(8, 3, dtype=torch.float64, requires_grad=True)
    y = torch.tensor([0, 0, 1, 2, 1, 0, 3, 3]) if labeled else None
    c = cosines(x.detach())
    met = [c[i, j] for i in range(8) for j in range(8) if i != j and (y is None or y[i] != y[j])]
    first, second = torch.stack(met).mean(), torch.stack(met).square().mean()
    found = average_cosines(x, y)
    assert found[0].item() == pytest.approx(first.item(), abs=1e-12)
    assert found[1].item() == pytest.approx(second.item(), rel=1e-12)
    loss = GlobalOrthogonalRegularization(2.0, 3.0)
    expected = 2 * first**2 + 3 * max(0.0, second - 1 / 3)
    assert loss(x, y).item() == pytest.approx(expected.item(), rel=1e-10)
    assert torch.autograd.gradcheck(lambda x: loss(x, y), x)


def test_random_directions_are_nearly_at_its_minimum_in_high_dimensions():
    x = uniform(2000, 512, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    first, second = average_cosines(x, None)
    assert abs(first) < 1e-4
    assert second.item() == pytest.approx(1 / 512, rel=1e-2)


def test_is_a_penalty_of_neurons():
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    penalty = Penalty(net, global_orthogonal_regularization, hidden=1.0)
    expected = GlobalOrthogonalRegularization()(net[0].weight)
    assert penalty().item() == pytest.approx(expected.item(), rel=1e-6)


@pytest.mark.untyped
def test_refuses():
    with pytest.raises(ValueError, match="kernel must be a Kernel object"):
        FeatureEnergy("gaussian")
    for name in ("mean_weight", "moment_weight"):
        with pytest.raises(ValueError, match=name):
            GlobalOrthogonalRegularization(**{name: -1.0})
