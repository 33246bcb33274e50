import copy
import math

import numpy as np
import pytest
import torch

from hypersphere import angular


class AngularContract:
    """The contract of all functions g. A new one inherits it and gives its float64 formula on θ."""

    g: angular.Angular

    def formula(self, theta: np.ndarray) -> np.ndarray:
        raise AssertionError("the contract's class must give the formula")

    def test_the_slope_is_the_derivative_also_at_the_poles_and_beyond_rounding(self):
        cos = torch.cos(torch.linspace(0, math.pi, 201, dtype=torch.float64))
        cos = torch.cat([cos, torch.tensor([1 + 1e-15, -1 - 1e-15], dtype=torch.float64)]).requires_grad_()
        value = self.g(cos)
        pair = self.g.with_slope(cos.detach())
        if pair is not None:
            assert torch.allclose(pair[0], value, rtol=1e-12, atol=1e-15)
            assert torch.allclose(pair[1], torch.autograd.grad(value.sum(), cos)[0], rtol=1e-9)
            assert torch.equal(self.g.slope(cos.detach()), pair[1])

    def test_value_and_slope_in_single_precision(self):
        cos = torch.cat([torch.linspace(-1, 1, 4001), torch.tensor([1e-30, -1e-10, 1e-4, 1 - 2**-24, 1 + 2**-23])])
        pair = self.g.with_slope(cos)
        if pair is not None:
            exact = cos.double().clamp(-1, 1).requires_grad_()
            value = self.g(exact)
            slope = torch.autograd.grad(value.sum(), exact)[0]
            assert torch.allclose(pair[0].double(), value, rtol=4e-7, atol=1e-37 if value[2000] == 0 else 4e-7)
            inner = cos.abs() < 0.99  # closer to the poles, the dtype's ε limits the slope's accuracy
            sine = (1 - exact.detach()[inner].square()).sqrt()
            found, slope = pair[1].double()[inner] * sine, slope[inner] * sine
            # Slopes by θ, relative to the steepest: the sigmoid's has the factor 1 − (g/T)², which rounds like 1.
            assert torch.allclose(found, slope, rtol=2e-6, atol=1e-6 * slope.max().item())
            alone = self.g.slope(cos).double()
            assert torch.allclose(alone[inner] * sine, slope, rtol=2e-6, atol=1e-6 * slope.max().item())
            assert torch.isfinite(alone).all()

    def test_is_odd_where_it_says_so(self):
        cos = torch.linspace(-1, 1, 101, dtype=torch.float64)
        assert torch.allclose(self.g(-cos), -self.g(cos), rtol=1e-12, atol=0) == self.g.odd

    def test_agrees_with_the_formula_on_the_angle(self):
        theta = np.linspace(0, math.pi, 5001)
        cos = torch.from_numpy(np.cos(theta))
        assert np.abs(self.g(cos).detach().numpy() - self.formula(theta)).max() <= 1e-7

    def test_falls_from_one_to_minus_one_through_zero(self):
        values = self.g(torch.cos(torch.linspace(0, math.pi, 5001, dtype=torch.float64)))
        assert (values.diff() <= 0).all()
        assert torch.allclose(self.g(torch.tensor([1.0, 0.0, -1.0])), torch.tensor([1.0, 0.0, -1.0]), atol=1e-6)

    def test_at_an_angle_is_the_same_function(self):
        theta = torch.linspace(0, math.pi, 101, dtype=torch.float64)
        assert torch.allclose(self.g.at(theta), torch.from_numpy(self.formula(theta.numpy())), atol=1e-7)
        fall = self.formula(np.array(0.0)) - self.formula(np.array(math.pi))
        assert float(self.g.span(theta[:1])) == pytest.approx(float(fall), abs=1e-6)

    def test_gradcheck(self):
        cos = torch.linspace(-0.99, 0.99, 20, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(self.g, cos)
        assert torch.autograd.gradgradcheck(self.g, cos)

    def test_finite_at_the_poles_and_beyond_rounding(self):
        cos = torch.tensor([1.0, -1.0, 1.0000001], requires_grad=True)
        self.g(cos).sum().backward()
        assert torch.isfinite(cos.grad).all()

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
    def test_keeps_the_dtype(self, dtype):
        assert self.g(torch.zeros(3, dtype=dtype)).dtype == dtype

    @pytest.mark.untyped
    def test_compiles_as_one_graph(self):
        torch._dynamo.reset()
        cos = torch.linspace(-1, 1, 9)
        assert torch.allclose(torch.compile(self.g, fullgraph=True, backend="aot_eager")(cos), self.g(cos), atol=1e-6)

    def test_survives_a_copy(self):
        cos = torch.linspace(-1, 1, 9)
        assert torch.equal(copy.deepcopy(self.g)(cos), self.g(cos))


class TestCosine(AngularContract):
    g = angular.Cosine()
    formula = staticmethod(np.cos)


class TestLinear(AngularContract):
    g = angular.Linear()

    def formula(self, theta):
        return 1 - 2 * theta / math.pi


class TestSquareCosine(AngularContract):
    g = angular.SquareCosine()

    def formula(self, theta):
        return np.sign(np.cos(theta)) * np.cos(theta) ** 2


class TestPower(AngularContract):
    g = angular.Power(3)

    def formula(self, theta):
        return 2 * ((np.cos(theta) + 1) / 2) ** 3 - 1

    def test_falls_from_one_to_minus_one_through_zero(self):
        """Unlike the cosine, g is negative at the equator."""
        values = self.g(torch.cos(torch.linspace(0, math.pi, 5001, dtype=torch.float64)))
        assert (values.diff() <= 0).all()
        assert torch.allclose(self.g(torch.tensor([1.0, 0.0, -1.0])), torch.tensor([1.0, -0.75, -1.0]))

    @pytest.mark.parametrize("t", [0.5, 101, math.nan])
    def test_refuses(self, t):
        with pytest.raises(ValueError, match="t must be a number"):
            angular.Power(t)

    def test_rounding_below_minus_one_is_cut_off(self):
        cos = torch.tensor([-1.0000001], requires_grad=True)
        value = angular.Power(1.5)(cos)
        value.backward()
        assert value == -1
        assert torch.isfinite(cos.grad).all()


class TestSigmoid(AngularContract):
    g = angular.Sigmoid(0.3)
    k = 0.3

    def formula(self, theta):
        k = self.k
        first = (1 + np.exp(-math.pi / (2 * k))) / (1 - np.exp(-math.pi / (2 * k)))
        z = np.exp(theta / k - math.pi / (2 * k))
        return first * (1 - z) / (1 + z)

    @pytest.mark.parametrize("k", [1e-3, 0.05, 0.5, 5.0])
    def test_other_curvatures_agree_with_the_formula(self, k):
        theta = np.linspace(0.01, math.pi - 0.01, 501)
        self.k = k
        with np.errstate(over="ignore", invalid="ignore"):
            reference = self.formula(theta)
        finite = np.isfinite(reference)
        assert finite.any()
        measured = angular.Sigmoid(k)(torch.from_numpy(np.cos(theta))).numpy()
        assert np.abs(measured - reference)[finite].max() <= 1e-7
        assert np.isfinite(measured).all()

    def test_becomes_linear_as_k_grows(self):
        cos = torch.linspace(-1, 1, 101, dtype=torch.float64)
        gaps = [(angular.Sigmoid(k)(cos) - angular.Linear()(cos)).abs().max().item() for k in (1, 10, 100)]
        assert gaps[0] > gaps[1] > gaps[2]
        assert gaps[2] < 1e-4

    @pytest.mark.parametrize("k", [0.0, -1.0, 1e-4, 1e4, math.nan, math.inf])
    def test_refuses(self, k):
        with pytest.raises(ValueError, match="k must be a number in"):
            angular.Sigmoid(k)

    @pytest.mark.untyped
    def test_refuses_another_word(self):
        with pytest.raises(ValueError, match="learnable must be"):
            angular.Sigmoid(learnable="neuron")


class TestLearnableSigmoid(AngularContract):
    g = angular.Sigmoid(0.3, learnable="layer")
    formula = TestSigmoid.formula
    k = 0.3

    def test_each_filter_has_its_own_k(self):
        g = angular.Sigmoid(0.5, learnable="filter").for_neurons(3)
        g.log_k.data = torch.tensor([0.1, 0.5, 2.0]).log()
        cos = torch.rand(2, 3, 4, 4) * 2 - 1
        out = g(cos, 1)
        for i, k in enumerate((0.1, 0.5, 2.0)):
            assert torch.allclose(out[:, i], angular.Sigmoid(k)(cos[:, i]), atol=1e-6)
        assert torch.equal(g(cos, -3), out)
        assert torch.allclose(g.k, torch.tensor([0.1, 0.5, 2.0]))

    def test_k_learns_and_stays_positive(self):
        g = angular.Sigmoid(0.5, learnable="filter").for_neurons(2)
        optimizer = torch.optim.SGD(g.parameters(), lr=100.0)
        for _ in range(3):
            g(torch.tensor([[0.3, -0.4]])).sum().backward()
            optimizer.step()
        assert (g.k > 0).all()
        assert (g.k != 0.5).all()

    def test_who_shares_k(self):
        layer = angular.Sigmoid(learnable="layer")
        assert layer.for_neurons(3) is not layer.for_neurons(3)
        shared = angular.Sigmoid(learnable="shared")
        assert shared.for_neurons(3) is shared
        fixed = angular.Sigmoid()
        assert fixed.for_neurons(3) is fixed

    def test_an_unbound_filter_form_says_what_to_do(self):
        with pytest.raises(ValueError, match="for_neurons"):
            angular.Sigmoid(learnable="filter")(torch.zeros(1))


class TestCustom:
    def test_a_callable_and_a_module(self):
        cos = torch.linspace(-1, 1, 5)
        assert torch.equal(angular.as_angular(torch.sin)(cos), torch.sin(cos))
        module = angular.as_angular(torch.nn.Linear(5, 5))
        assert len(list(module.parameters())) == 2
        assert angular.as_angular(module) is module

    def test_a_callable_never_sees_more_than_one(self):
        g = angular.as_angular(torch.acos)
        assert g(torch.tensor([1.0000001, -1.0000001])).tolist() == pytest.approx([0.0, math.pi])

    @pytest.mark.untyped
    @pytest.mark.parametrize("wrong", ["cosine", 3, None, angular.Cosine])
    def test_refuses(self, wrong):
        with pytest.raises(ValueError, match="angular must be"):
            angular.as_angular(wrong)


def test_the_base_class_says_what_is_missing():
    with pytest.raises(TypeError, match="abstract"):
        angular.Angular()(torch.zeros(1))


def test_another_g_inherits_neither_slope_nor_oddness():
    class Shifted(angular.Linear):
        def forward(self, cos, dim=-1):
            return super().forward(cos, dim) - 1

    class Steeper(angular.Linear):
        def with_slope(self, cos):
            value, slope = super().with_slope(cos)
            return 2 * value, 2 * slope

    class Named(angular.Linear):
        pass

    cos = torch.linspace(-0.9, 0.9, 5)
    assert Shifted().with_slope(cos) is None
    assert not Shifted().odd
    assert torch.equal(Steeper().slope(cos), Steeper().with_slope(cos)[1])
    assert Named().odd
    assert torch.equal(Named().slope(cos), angular.Linear().slope(cos))
