"""Contract tests of operators: every magnitude × angle × layer, compared with an independent reference."""

import copy
import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from hypersphere import angular
from hypersphere.operators import Conv1d, Conv2d, Conv3d, Linear

ANGLES = {
    "cosine": (angular.Cosine(), np.cos),
    "linear": (angular.Linear(), lambda t: 1 - 2 * t / math.pi),
    "sigmoid": (angular.Sigmoid(0.3), lambda t: np.tanh((math.pi / 2 - t) / 0.6) / math.tanh(math.pi / 1.2)),
    "square": (angular.SquareCosine(), lambda t: np.sign(np.cos(t)) * np.cos(t) ** 2),
    "user": (lambda c: c**3, lambda t: np.cos(t) ** 3),
}
PADDING = {"zeros": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
LAYERS = {
    "linear": lambda **k: (Linear(7, 5, **k), (3, 7)),
    "conv1d": lambda **k: (Conv1d(4, 6, 3, stride=2, padding=1, groups=2, **k), (2, 4, 8)),
    "conv2d": lambda **k: (Conv2d(4, 6, (3, 2), stride=(1, 2), padding=(1, 0), dilation=(1, 2), **k), (2, 4, 5, 6)),
    "conv3d": lambda **k: (Conv3d(4, 4, 2, padding="same", groups=4, **k), (1, 4, 3, 3, 3)),
}


def reference(layer, x, h, g):
    """Compute f(w, x) patch by patch in float64. ``h(w_norm, x_norm)`` and ``g(θ)`` are numpy formulas."""
    w = layer.weight.detach().double().numpy().reshape(layer.weight.shape[0], -1)
    bias = np.zeros(len(w)) if layer.bias is None else layer.bias.detach().double().numpy()
    x = x.detach().double().numpy()
    if isinstance(layer, nn.Linear):
        return np.stack([_neurons(row, w, h, g) + bias for row in x])
    k, s, d = layer.kernel_size, layer.stride, layer.dilation
    x = np.pad(x, [(0, 0), (0, 0), *_around(layer)], mode=PADDING[layer.padding_mode])
    sizes = [(length - (kk - 1) * dd - 1) // ss + 1 for length, kk, dd, ss in zip(x.shape[2:], k, d, s, strict=True)]
    groups, per = layer.groups, len(w) // layer.groups
    out = np.zeros((len(x), len(w), *sizes))
    for n, *at in itertools.product(range(len(x)), *map(range, sizes)):
        window = [slice(i * ss, i * ss + (kk - 1) * dd + 1, dd) for i, kk, dd, ss in zip(at, k, d, s, strict=True)]
        patch = x[(n, slice(None), *window)]
        for group, part in enumerate(np.split(patch, groups)):
            rows = slice(group * per, (group + 1) * per)
            out[(n, rows, *at)] = _neurons(part.ravel(), w[rows], h, g) + bias[rows]
    return out


def _neurons(x, w, h, g):
    x_norm, w_norm = np.linalg.norm(x), np.linalg.norm(w, axis=1)
    if x_norm == 0:
        return np.zeros(len(w))
    theta = np.arccos(np.clip(w @ x / (x_norm * w_norm), -1, 1))
    return h(w_norm, x_norm) * g(theta)


def _around(layer):
    if layer.padding == "valid":
        return [(0, 0) for _ in layer.kernel_size]
    if layer.padding == "same":
        total = [d * (k - 1) for k, d in zip(layer.kernel_size, layer.dilation, strict=True)]
        return [(t // 2, t - t // 2) for t in total]
    return [(p, p) for p in layer.padding]


@st.composite
def geometries(draw):
    """Draw any 2D convolution whose output is not empty."""
    pair = lambda low, high: st.tuples(st.integers(low, high), st.integers(low, high))
    groups = draw(st.sampled_from([1, 2, 4]))
    mode = draw(st.sampled_from(list(PADDING)))
    kernel, dilation = draw(pair(1, 3)), draw(pair(1, 2))
    padding = draw(st.one_of(pair(0, 2), st.sampled_from(["same", "valid"])))
    stride = (1, 1) if padding == "same" else draw(pair(1, 3))
    size = draw(pair(6, 8))
    shape = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups, "padding_mode": mode}
    # At least four channels per group: a patch of one entry is parallel to its filter, where arccos is inaccurate.
    return (4 * groups, 2 * groups, kernel), shape, size, draw(st.booleans())


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")  # torch's own convolutions warn too
class FormulaContract:
    """Compare values and gradients with a formula, which the subclass defines."""

    magnitude = None

    def formula(self, w_norm, x_norm):
        raise AssertionError("the contract's class must give the formula")

    def layer(self, kind="conv2d", angle="cosine", dtype=torch.float64, **more):
        layer, shape = LAYERS[kind](magnitude=self.magnitude, angular=ANGLES[angle][0], dtype=dtype, **more)
        return layer, 2 * torch.randn(shape, dtype=dtype)

    @pytest.mark.parametrize("kind", LAYERS)
    @pytest.mark.parametrize("angle", ANGLES)
    def test_agrees_with_the_formula_patch_by_patch(self, kind, angle):
        layer, x = self.layer(kind, angle)
        expected = reference(layer, x, self.formula, ANGLES[angle][1])
        assert np.abs(layer(x).detach().numpy() - expected).max() <= 1e-10
        single = layer.float()(x.float()).detach().numpy()
        rounded = reference(layer, x.float(), self.formula, ANGLES[angle][1])
        assert np.abs(single - rounded).max() <= 1e-4 * np.abs(rounded).max()

    # Every magnitude's class inherits this test and runs it separately.
    @settings(max_examples=12, suppress_health_check=[HealthCheck.differing_executors])
    @given(geometry=geometries(), angle=st.sampled_from(list(ANGLES)))
    def test_sees_exactly_the_patch_of_any_geometry(self, geometry, angle):
        sizes, shape, size, bias = geometry
        torch.manual_seed(0)
        layer = Conv2d(
            *sizes, bias=bias, **shape, dtype=torch.float64, magnitude=self.magnitude, angular=ANGLES[angle][0]
        )
        x = torch.randn(1, sizes[0], *size, dtype=torch.float64)
        expected = reference(layer, x, self.formula, ANGLES[angle][1])
        plain = nn.Conv2d(*sizes, **shape, dtype=torch.float64)(x)
        assert layer(x).shape == plain.shape
        assert np.abs(layer(x).detach().numpy() - expected).max() <= 1e-10

    @pytest.mark.parametrize("kind", ["linear", "conv2d"])
    @pytest.mark.parametrize("angle", ANGLES)
    def test_gradient_is_the_derivative(self, kind, angle):
        assert torch.autograd.gradcheck(*self.as_function(kind, angle), fast_mode=True)

    def as_function(self, kind, angle):
        """Return the layer as a function of its input and parameters, and arguments at which to differentiate it."""
        layer, x = self.layer(kind, angle)
        names = [name for name, _ in layer.named_parameters()]
        call = lambda x, *p: torch.func.functional_call(layer, dict(zip(names, p, strict=True)), (x,))
        return call, (
            x[:1].clone().requires_grad_(),
            *[p.detach().clone().requires_grad_() for p in layer.parameters()],
        )

    @pytest.mark.parametrize("kind", LAYERS)
    @pytest.mark.parametrize("angle", ANGLES)
    def test_a_zero_patch_gives_zero_with_finite_gradients(self, kind, angle):
        layer, x = self.layer(kind, angle, torch.float32, bias=False)
        x = torch.zeros_like(x).requires_grad_()
        out = layer(x)
        out.sum().backward()
        assert (out == 0).all()
        assert torch.isfinite(x.grad).all()
        assert x.grad.abs().max() < 100
        assert all(torch.isfinite(p.grad).all() for p in layer.parameters())

    @pytest.mark.parametrize("kind", LAYERS)
    def test_state_dict_has_the_plain_keys_and_round_trips(self, kind):
        layer, x = self.layer(kind)
        other, _ = self.layer(kind)
        assert {"weight", "bias"} <= set(layer.state_dict())
        other.load_state_dict(layer.state_dict())
        assert torch.equal(other.eval()(x), layer.eval()(x))
        assert torch.equal(copy.deepcopy(layer)(x), layer(x))

    def test_the_length_of_a_weight_matters_only_when_it_should(self):
        layer, x = self.layer(bias=False)
        before = layer(x)
        layer.weight.data *= torch.linspace(0.5, 20, 6).reshape(-1, 1, 1, 1)
        assert torch.allclose(layer(x), before, atol=1e-12) is not layer.magnitude.uses_weight_norm

    def test_says_what_it_is(self):
        assert type(self.magnitude).__name__ in repr(self.layer()[0])


class MagnitudeContract(FormulaContract):
    """The contract of a magnitude; subclasses define its formula."""

    @pytest.mark.parametrize("angle", ["cosine", "linear"])
    def test_second_derivative(self, angle):
        assert torch.autograd.gradgradcheck(*self.as_function("conv1d", angle), fast_mode=True)

    @pytest.mark.parametrize("angle", ANGLES)
    def test_short_patches_do_not_blow_up(self, angle):
        layer, x = self.layer("conv2d", angle, torch.float32)
        for scale in (1e-3, 1e-6, 1e-9, 1e-15, 1e-25):
            short = (scale * x).requires_grad_()
            layer(short).sum().backward()
            # Each input is in at most six patches of six filters; the angle's slope is at most 1/(k·MIN_NORM).
            assert short.grad.abs().max() <= 2e8
            assert all(torch.isfinite(p.grad).all() for p in layer.parameters())

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
    @pytest.mark.parametrize("angle", ["cosine", "linear"])
    def test_half_precision_inputs_of_512_channels(self, dtype, angle):
        layer = Conv2d(512, 4, 3, magnitude=self.magnitude, angular=ANGLES[angle][0], dtype=dtype)
        layer.weight.data += 0.5 * layer.weight.abs().max()
        x = (10 + torch.randn(1, 512, 3, 3)).to(dtype)
        expected = reference(layer, x, self.formula, ANGLES[angle][1])
        out = layer(x)
        assert out.dtype == dtype
        assert np.abs(expected).max() > 0.05
        assert np.abs(out.detach().float().numpy() - expected).max() <= 0.02 * max(np.abs(expected).max(), 1)
        out.float().sum().backward()
        assert torch.isfinite(layer.weight.grad).all()

    def test_autocast_keeps_parameters_and_agrees(self):
        layer, x = self.layer(dtype=torch.float32)
        with torch.autocast("cpu", torch.bfloat16):
            out = layer(x)
        assert out.dtype == torch.bfloat16
        assert layer.weight.dtype == torch.float32
        assert torch.allclose(out.float(), layer(x), atol=0.05 * layer(x).abs().max().item())

    def test_channels_last_is_kept(self):
        layer, x = self.layer(dtype=torch.float32)
        expected = layer(x)
        last = torch.channels_last
        x, layer = x.to(memory_format=last).requires_grad_(), layer.to(memory_format=last)
        out = layer(x)
        out.sum().backward()
        assert out.is_contiguous(memory_format=last)
        assert x.grad.is_contiguous(memory_format=last)
        assert torch.allclose(out, expected, atol=1e-5)

    def test_an_input_without_a_batch(self):
        layer, x = self.layer()
        assert torch.allclose(layer(x[0]), layer(x)[0], atol=1e-12)

    def test_vmap(self):
        layer, x = self.layer("linear", "linear")
        layer.eval()
        assert torch.allclose(torch.vmap(layer)(x), layer(x), atol=1e-12)

    @pytest.mark.untyped
    def test_compiles_as_one_graph(self):
        torch._dynamo.reset()
        layer, x = self.layer()
        other, y = copy.deepcopy(layer), x.clone().requires_grad_()
        x.requires_grad_()
        compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
        for f, z in ((compiled, x), (other, y)):
            f(z).square().sum().backward()
        assert torch.allclose(compiled(x), other(y), atol=1e-12)
        assert torch.allclose(x.grad, y.grad, atol=1e-12)


class BoundedContract:
    """|f| ≤ α for every input (4.3.2)."""

    @pytest.mark.parametrize("kind", LAYERS)
    @pytest.mark.parametrize("angle", ANGLES)
    def test_is_bounded_by_alpha(self, kind, angle):
        layer, x = self.layer(kind, angle, torch.float32, bias=False)
        for scale in (1e-4, 1, 1e6):
            assert layer(scale * x).abs().max() <= self.magnitude.alpha * (1 + 1e-6)
