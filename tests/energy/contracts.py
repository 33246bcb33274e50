"""Tests of all energies, regularizers and projections."""

import copy
import io
import math

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from hypersphere.energy import CoMHE, Projection, hyperspherical_energy
from hypersphere.geometry import uniform


def brute_force(weight, s, half_space=False, distance="euclidean", importance=None):
    """Return the mean energy by loops over all pairs of points, in float64 with numpy."""
    w = np.asarray(weight.detach(), dtype=np.float64).reshape(len(weight), -1)
    w = w / np.linalg.norm(w, axis=1, keepdims=True)
    if importance is not None:
        w = w * np.asarray(importance, dtype=np.float64)[:, None]
    points = np.concatenate([w, -w]) if half_space else w
    total = 0.0
    for i in range(len(points)):
        for j in range(len(points)):
            if i != j:
                d = np.linalg.norm(points[i] - points[j])
                z = d if distance == "euclidean" else 2 * math.atan2(d, np.linalg.norm(points[i] + points[j]))
                total += z**-s if s > 0 else -math.log(z)
    return total / (len(points) * (len(points) - 1))


class EnergyContract:
    """Tests of an energy with one choice of power, space and distance."""

    s: float = 2
    half_space = False
    distance = "euclidean"

    def energy(self, weight, **options):
        return hyperspherical_energy(weight, self.s, self.half_space, self.distance, **options)

    def weight(self, n=9, d=5, dtype=torch.float64):
        return torch.randn(n, d, dtype=dtype)

    @settings(suppress_health_check=[HealthCheck.differing_executors])  # inherited on purpose
    @given(n=st.integers(2, 9), d=st.integers(2, 6), seed=st.integers(0, 2**31))
    def test_equals_brute_force(self, n, d, seed):
        w = torch.randn(n, d, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        reference = brute_force(w, self.s, self.half_space, self.distance)
        assert self.energy(w).item() == pytest.approx(reference, rel=1e-10, abs=1e-12)
        assert self.energy(w.float()).item() == pytest.approx(
            brute_force(w.float(), self.s, self.half_space, self.distance), rel=1e-4, abs=1e-5
        )

    def test_sum_is_the_mean_times_the_pairs(self):
        points = 18 if self.half_space else 9
        w = self.weight()
        assert self.energy(w, reduction="sum").item() == pytest.approx(
            self.energy(w).item() * points * (points - 1), rel=1e-12
        )

    @pytest.mark.parametrize("chunk", [1, 4, 9, None])
    def test_chunks_change_nothing(self, chunk):
        w, whole = self.weight().requires_grad_(), self.weight()
        whole.copy_(w.detach()).requires_grad_()
        self.energy(w, chunk=chunk).backward()
        self.energy(whole, chunk=100).backward()
        assert torch.allclose(w.grad, whole.grad, rtol=1e-10, atol=1e-14)

    @pytest.mark.parametrize("chunk", [3, None])
    def test_gradcheck_twice(self, chunk):
        w = self.weight(5, 3).requires_grad_()
        assert torch.autograd.gradcheck(lambda w: self.energy(w, chunk=chunk), w)
        assert torch.autograd.gradgradcheck(lambda w: self.energy(w, chunk=chunk), w)

    def test_rotation_scale_and_permutation_change_nothing(self):
        w = self.weight()
        e = self.energy(w)
        rotation = torch.linalg.qr(torch.randn(5, 5, dtype=torch.float64)).Q
        for other in (
            w @ rotation,
            100 * w,
            w * (torch.rand(9, 1, dtype=torch.float64) + 0.1),
            w[torch.randperm(9)],
            w.view(9, 5, 1),
        ):
            assert self.energy(other).item() == pytest.approx(e.item(), rel=1e-12)

    def test_is_least_at_the_simplex(self):
        d = 4
        simplex = torch.eye(d + 1, dtype=torch.float64) - 1 / (d + 1)
        if self.half_space:
            simplex = torch.eye(d, dtype=torch.float64)  # with their opposites, the vertices of the cross-polytope
        n, dim = simplex.shape
        least = self.energy(simplex)
        basis = torch.linalg.svd(simplex).Vh[: d if not self.half_space else dim]
        assert all(least <= self.energy(uniform(n, len(basis), dtype=torch.float64)) + 1e-12 for _ in range(200))
        simplex.requires_grad_()
        self.energy(simplex).backward()
        assert simplex.grad.abs().max() < 1e-12

    def test_close_neurons_are_right_to_a_thousandth_in_float32(self):
        w = torch.randn(12, 64)
        w[1] = w[0] + 1e-4 * w[0].norm() * torch.nn.functional.normalize(torch.randn(64), dim=0)
        w[3] = -2 * w[2] + 1e-4 * w[2].norm() * torch.nn.functional.normalize(torch.randn(64), dim=0)
        single, double = w.clone().requires_grad_(), w.double().requires_grad_()
        e = self.energy(single)
        assert e.item() == pytest.approx(brute_force(w, self.s, self.half_space, self.distance), rel=1e-5)
        e.backward()
        self.energy(double, chunk=5).backward()
        assert (single.grad - double.grad).norm() <= 1e-3 * double.grad.norm()

    def test_duplicates_zero_rows_and_extreme_lengths_are_finite(self):
        w = self.weight(8, 16, torch.float32)
        w[1], w[2], w[3], w[4] = w[0], -w[0], 0, 0
        w[5] *= 1e30
        w[6] *= 1e-30
        w.requires_grad_()
        e = self.energy(w)
        e.backward()
        assert torch.isfinite(e)
        assert torch.isfinite(w.grad).all()
        assert (w.grad[3:5] == 0).all()

    def test_neurons_that_nearly_coincide_push_each_other_apart(self):
        w = torch.eye(3, dtype=torch.float64)[:2]
        w[1] = w[0] + torch.tensor([0.0, 1e-9, 0.0], dtype=torch.float64)
        w.requires_grad_()
        self.energy(w).backward()
        assert w.grad[1, 1] < 0 < w.grad[0, 1]

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
    def test_half_precision_and_autocast(self, dtype):
        w = self.weight(dtype=dtype).requires_grad_()
        e = self.energy(w)
        e.backward()
        assert (e.dtype, w.grad.dtype) == (torch.float32, dtype)
        assert e.item() == pytest.approx(
            brute_force(w.float(), self.s, self.half_space, self.distance), rel=1e-4, abs=1e-5
        )
        single = w.detach().float()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert torch.equal(self.energy(single), e.detach())


class RegularizerContract:
    """Tests of a regularizer of a network's neurons."""

    def make(self, model):
        raise AssertionError("the contract's class must make its regulariser")

    def net(self):
        return nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=8), nn.Flatten(), nn.Linear(16, 6), nn.Linear(6, 4)
        )

    def test_gives_gradients_to_the_layers_it_names(self):
        net = self.net().double()
        regularizer = self.make(net)
        regularizer().backward()
        for name, module in net.named_modules():
            if hasattr(module, "weight"):
                assert (module.weight.grad is not None) == (name in regularizer.per_layer())
        assert regularizer.skipped["2"] == "fewer than two neurons to compare"

    def test_does_not_own_the_model(self):
        net = self.net()
        regularizer = self.make(net)
        assert list(regularizer.parameters()) == []
        assert not any("weight" in key for key in regularizer.state_dict())
        assert net[0] not in list(regularizer.modules())

    def test_is_the_derivative_of_its_value(self):
        net = self.net().double()
        regularizer = self.make(net)
        weight = net[0].weight
        (gradient,) = torch.autograd.grad(regularizer(), weight)
        direction = torch.randn_like(weight)
        step = 1e-6
        with torch.no_grad():
            weight += step * direction
            up = regularizer()
            weight -= 2 * step * direction
            down = regularizer()
        assert (gradient * direction).sum().item() == pytest.approx(
            ((up - down) / (2 * step)).item(), rel=1e-4, abs=1e-8
        )

    def test_sees_the_effective_weight(self):
        net = self.net()
        nn.utils.parametrizations.weight_norm(net[0])
        value = self.make(net).per_layer()["0"]
        plain = self.net()
        plain.load_state_dict(
            {k: v for k, v in net.state_dict().items() if not k.startswith("0.")}
            | {"0.weight": net[0].weight.detach(), "0.bias": net[0].bias.detach()}
        )
        assert value.item() == pytest.approx(self.make(plain).per_layer()["0"].item(), rel=1e-5)

    def test_the_terms_add_up_to_the_loss(self):
        regularizer, labels = self.make(self.net()), torch.tensor([0, 3, 3])
        for batch in (None, labels):
            terms = regularizer.terms(batch)
            assert set(terms) <= {"hidden", "output"}
            assert regularizer(batch).item() == pytest.approx(sum(term.item() for term in terms.values()), rel=1e-6)
        regularizer.step()

    def test_everything_left_out_has_a_reason(self):
        net = nn.Sequential(self.net(), nn.Embedding(5, 4), nn.LSTM(4, 4))
        skipped = self.make(net).skipped
        assert "table" in skipped["1"]
        assert "LSTM" in skipped["2.weight_ih_l0"]

    def test_autocast_changes_nothing(self):
        regularizer = self.make(self.net())
        value = regularizer()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert regularizer().item() == pytest.approx(value.item(), rel=1e-6)


class ProjectionContract(RegularizerContract):
    """Tests of a projection inside CoMHE."""

    def projection(self, **options) -> Projection:
        raise AssertionError("the contract's class must make its projection")

    def make(self, model, **options):
        return CoMHE(model, self.projection(**options))

    def train(self, net, comhe, steps):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(steps):
            optimizer.zero_grad()
            comhe().backward()
            optimizer.step()
            comhe.step()
        return comhe()

    def test_resumes_exactly(self):
        net = self.net()
        comhe = self.make(net)
        self.train(net, comhe, 3)
        saved = io.BytesIO()
        torch.save({"net": net.state_dict(), "comhe": comhe.state_dict()}, saved)
        expected = self.train(net, comhe, 4)
        saved.seek(0)
        state = torch.load(saved, weights_only=True)
        other = self.net()
        other.load_state_dict(state["net"])
        resumed = self.make(other)
        resumed.load_state_dict(state["comhe"])
        assert torch.equal(self.train(other, resumed, 4), expected)

    def test_training_lowers_it(self):
        torch.manual_seed(1)
        net = self.net()
        comhe = self.make(net)
        before = comhe()
        assert self.train(net, comhe, 30) < before

    def test_copies_go_their_own_way_from_the_same_state(self):
        net = self.net()
        comhe = self.make(net)
        twin = copy.deepcopy(comhe)
        assert torch.equal(self.train(net, comhe, 3), self.train(self._model_of(twin), twin, 3))

    def _model_of(self, comhe):
        return nn.ModuleList(layer.module for layer in comhe._layers.values())

    def test_the_seed_decides(self):
        net = self.net()
        assert torch.equal(self.make(net, seed=5)(), self.make(net, seed=5)())

    def test_is_used_by_one_regulariser_only(self):
        net, projection = self.net(), self.projection()
        CoMHE(net, projection)
        with pytest.raises(ValueError, match="already serves a layer"):
            CoMHE(net, projection)
