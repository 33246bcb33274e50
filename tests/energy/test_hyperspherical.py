import math
import os
import pathlib
import subprocess
import sys

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

from hypersphere import energy as energy_package
from hypersphere.energy import MHE, class_energy, hyperspherical_energy
from hypersphere.energy.hyperspherical import as_neurons
from hypersphere.geometry import normalize
from tests import distributed
from tests.energy.contracts import EnergyContract, brute_force


class TestLogarithmic(EnergyContract):
    s = 0


class TestThomson(EnergyContract):
    s = 1


class TestInverseSquare(EnergyContract):
    s = 2


class TestRealPower(EnergyContract):
    s = 3.3


class HalfSpaceContract(EnergyContract):
    half_space = True

    def test_sign_flips_change_nothing(self):
        w = self.weight()
        flipped = w * (2 * torch.randint(2, (9, 1)) - 1)
        assert self.energy(flipped).item() == pytest.approx(self.energy(w).item(), rel=1e-12)

    def test_equals_the_energy_of_neurons_and_opposites(self):
        w = self.weight()
        doubled = hyperspherical_energy(torch.cat([w, -w]), self.s, False, self.distance)
        assert self.energy(w).item() == pytest.approx(doubled.item(), rel=1e-12)


class TestHalfSpaceLogarithmic(HalfSpaceContract):
    s = 0


class TestHalfSpaceInverseSquare(HalfSpaceContract):
    s = 2


class TestHalfSpaceRealPower(HalfSpaceContract):
    s = 1.5


class TestAngular(EnergyContract):
    distance = "angular"


class TestHalfSpaceAngular(HalfSpaceContract):
    s = 1
    distance = "angular"


class TestImportance:
    @pytest.mark.parametrize("s", [0, 1, 2])
    @pytest.mark.parametrize("half_space", [False, True])
    def test_equals_brute_force(self, s, half_space):
        w, beta = torch.randn(7, 4, dtype=torch.float64), torch.rand(7, dtype=torch.float64) + 0.5
        value = hyperspherical_energy(w, s, half_space, importance=beta)
        assert value.item() == pytest.approx(brute_force(w, s, half_space, importance=beta), rel=1e-10)
        w.requires_grad_()
        assert torch.autograd.gradcheck(lambda w: hyperspherical_energy(w, s, half_space, importance=beta, chunk=3), w)

    def test_close_neurons_of_different_importance(self):
        w = torch.randn(5, 8)
        w[1] = w[0] * 1.5 + 1e-5
        beta = torch.tensor([1.0, 2.0, 1.0, 1.0, 1.0])
        assert hyperspherical_energy(w, importance=beta).item() == pytest.approx(
            brute_force(w, 2, importance=beta), rel=1e-5
        )

    def test_ones_change_nothing(self):
        w = torch.randn(7, 4)
        assert torch.allclose(hyperspherical_energy(w, importance=torch.ones(7)), hyperspherical_energy(w))

    def test_important_neurons_move_less(self):
        w = normalize(torch.randn(10, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))
        start, beta = w.clone(), torch.ones(10, dtype=torch.float64)
        beta[0] = 10
        for _ in range(50):
            w.requires_grad_()
            (gradient,) = torch.autograd.grad(hyperspherical_energy(w, importance=beta), w)
            w = normalize(w.detach() - 0.1 * gradient)
        moved = (w - start).norm(dim=1)
        assert moved[0] < 0.2 * moved[1:].median()

    @pytest.mark.untyped
    @pytest.mark.parametrize("beta", [torch.ones(6), torch.zeros(7), torch.full((7,), math.nan)])
    def test_refuses(self, beta):
        with pytest.raises(ValueError, match="importance must hold one finite number > 0"):
            hyperspherical_energy(torch.randn(7, 4), importance=beta)
        with pytest.raises(ValueError, match="which angles ignore"):
            hyperspherical_energy(torch.randn(7, 4), importance=torch.ones(7), distance="angular")


class TestSample:
    @pytest.mark.parametrize("half_space", [False, True])
    @pytest.mark.parametrize("reduction", ["mean", "sum"])
    def test_is_unbiased(self, half_space, reduction):
        w, generator = torch.randn(12, 4), torch.Generator().manual_seed(3)
        exact = hyperspherical_energy(w, 1, half_space, reduction=reduction)
        draws = torch.stack(
            [
                hyperspherical_energy(w, 1, half_space, reduction=reduction, sample=4, generator=generator)
                for _ in range(1500)
            ]
        )
        assert (draws.mean() - exact).abs() < 4 * draws.std() / 1500**0.5

    def test_keeps_the_importance_of_each(self):
        w, beta = torch.randn(6, 4, dtype=torch.float64), torch.rand(6, dtype=torch.float64) + 0.5
        generator = torch.Generator().manual_seed(0)
        value = hyperspherical_energy(w, importance=beta, sample=3, generator=generator)
        chosen = torch.randperm(6, generator=torch.Generator().manual_seed(0))[:3]
        assert value.item() == pytest.approx(brute_force(w[chosen], 2, importance=beta[chosen]))

    @pytest.mark.parametrize("sample", [1, 0, 13])
    def test_refuses(self, sample):
        with pytest.raises(ValueError, match="sample must be between 2 and the 12 neurons"):
            hyperspherical_energy(torch.randn(12, 4), sample=sample)


class TestClassEnergy:
    @pytest.mark.parametrize("s", [0, 2])
    @pytest.mark.parametrize("distance", ["euclidean", "angular"])
    def test_equals_the_formula(self, s, distance):
        w = torch.randn(6, 4, dtype=torch.float64)
        labels = torch.tensor([3, 0, 3, 5])
        pair = torch.tensor(
            [[brute_force(w[[i, j]], s, distance=distance) if i != j else 0.0 for j in range(6)] for i in range(6)]
        )
        assert class_energy(w, labels, s, distance=distance).item() == pytest.approx(
            pair[labels].sum().item() / (4 * 5), rel=1e-6
        )
        w.requires_grad_()
        assert torch.autograd.gradcheck(lambda w: class_energy(w, labels, s, distance=distance, chunk=2), w)

    def test_is_unbiased_for_equally_likely_classes(self):
        w = torch.randn(15, 4)
        exact = hyperspherical_energy(w, 1)
        draws = torch.stack([class_energy(w, torch.randint(15, (5,)), 1) for _ in range(1500)])
        assert (draws.mean() - exact).abs() < 4 * draws.std() / 1500**0.5

    def test_all_classes_once_is_the_whole(self):
        w = torch.randn(15, 4)
        assert torch.allclose(class_energy(w, torch.arange(15)), hyperspherical_energy(w))

    @pytest.mark.parametrize(
        ("labels", "message"), [([6], "from 6 to 6"), ([-1, 2], "from -1 to 2"), ([], "at least one")]
    )
    def test_refuses(self, labels, message):
        with pytest.raises(ValueError, match=message):
            class_energy(torch.randn(6, 4), torch.tensor(labels, dtype=torch.long))


class TestArguments:
    @pytest.mark.parametrize("shape", [(1, 4), (4, 0), (4,)])
    def test_refuses_shapes(self, shape):
        with pytest.raises(ValueError, match="at least two neurons"):
            hyperspherical_energy(torch.ones(shape))

    def test_refuses_the_rest(self):
        with pytest.raises(ValueError, match="chunk must be"):
            hyperspherical_energy(torch.eye(3), chunk=0)
        with pytest.raises(ValueError, match="s must be a number"):
            hyperspherical_energy(torch.eye(3), s=-1)

    @pytest.mark.untyped
    def test_refuses_strings_and_integers(self):
        with pytest.raises(ValueError, match="reduction must be"):
            hyperspherical_energy(torch.eye(3), reduction="none")
        with pytest.raises(ValueError, match="floating-point"):
            as_neurons(torch.ones(3, 3, dtype=torch.long))


def test_the_function_compiles_as_one_graph():
    """Run in a separate process, because the compiler cannot trace the shape checks of the tests."""
    code = """
import torch
from hypersphere.energy import hyperspherical_energy
w = torch.randn(40, 7, requires_grad=True)
energy = torch.compile(hyperspherical_energy, fullgraph=True, backend="aot_eager")(w, 1, True)
assert torch.equal(energy, hyperspherical_energy(w, 1, True))
energy.backward()
assert torch.isfinite(w.grad).all()
print("compiled")
"""
    source = str(pathlib.Path(energy_package.__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": source},
        check=False,
    )
    assert done.stdout.strip() == "compiled", done.stderr


def _gradients(rank):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Linear(7, 4))
    wrapped = DistributedDataParallel(net)
    mhe = MHE(net)
    x = torch.randn(8, 5, generator=torch.Generator().manual_seed(1))[4 * rank : 4 * rank + 4]
    (wrapped(x).square().mean() + mhe()).backward()
    return [p.grad for p in net.parameters()]


def test_distributed_data_parallel_adds_it_once():
    first, second = distributed.run(_gradients)
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Linear(7, 4))
    x = torch.randn(8, 5, generator=torch.Generator().manual_seed(1))
    (net(x).square().mean() + MHE(net)()).backward()
    for a, b, parameter in zip(first, second, net.parameters(), strict=True):
        assert torch.equal(a, b)
        assert torch.allclose(a, parameter.grad, atol=1e-6)
