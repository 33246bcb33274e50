import concurrent.futures
import gc

import pytest
import torch

from hypersphere import geometry
from hypersphere.geometry import fast_norms, normalize
from hypersphere.geometry.fast_norms import (
    MIN_NORM,
    bounded_inverse,
    directions,
    directions_backward,
    gram_cosines,
    normalize_rows,
    normalize_rows_once,
    per_neuron,
)


@pytest.mark.parametrize("shape", [(5, 7), (4, 3, 2), (4, 3, 2, 2), (4, 3, 2, 2, 2)])
def test_agrees_with_geometry(shape):
    weight = torch.randn(shape, dtype=torch.float64)
    what, length = normalize_rows(weight)
    assert torch.allclose(what.flatten(1), geometry.normalize(weight.flatten(1)), atol=1e-15)
    assert torch.allclose(length, geometry.norm(weight.flatten(1)), atol=1e-15)


def test_gradcheck():
    weight = torch.randn(3, 2, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(normalize_rows, weight)
    assert torch.autograd.gradgradcheck(normalize_rows, weight)


def test_a_zero_neuron_is_zero_with_gradient_zero():
    weight = torch.randn(3, 4)
    weight[1] = 0
    weight.requires_grad_()
    what, length = normalize_rows(weight)
    (what.sum() + length.sum()).backward()
    assert (what[1] == 0).all()
    assert length[1] == 0
    assert (weight.grad[1] == 0).all()
    assert torch.isfinite(weight.grad).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_weights_are_measured_in_float32(dtype):
    what, length = normalize_rows(torch.full((2, 40000), 2.0, dtype=dtype))
    assert what.dtype == dtype
    assert torch.allclose(length, torch.tensor(400.0))


def test_keeps_channels_last():
    weight = torch.randn(4, 3, 2, 2).to(memory_format=torch.channels_last)
    assert normalize_rows(weight)[0].is_contiguous(memory_format=torch.channels_last)


def test_vmap():
    weights = torch.randn(3, 4, 5)
    assert torch.allclose(torch.vmap(normalize_rows)(weights)[0], torch.stack([normalize_rows(w)[0] for w in weights]))


def test_per_neuron_broadcasts_over_the_last_axes():
    assert per_neuron(torch.ones(5), 3).shape == (5, 1, 1)


def test_the_inverse_has_no_steeper_slope_than_at_the_floor():
    x = torch.logspace(-12, 2, 200, dtype=torch.float64, requires_grad=True)
    bounded_inverse(x).sum().backward()
    assert x.grad.abs().max() <= 1 / MIN_NORM**2
    assert torch.allclose(bounded_inverse(x)[x >= MIN_NORM], 1 / x[x >= MIN_NORM])


@pytest.mark.parametrize("scale", [1.0, 1e-30, 1e30])
def test_is_normalize_and_its_derivative(scale):
    x = (scale * torch.randn(4, 7, dtype=torch.float64)).requires_grad_()
    g = torch.randn(4, 7, dtype=torch.float64)
    unit, length = directions(x)
    assert torch.allclose(unit, normalize(x), rtol=1e-14)
    assert torch.allclose(length.squeeze(1), x.detach().norm(dim=1), rtol=1e-14)
    (exact,) = torch.autograd.grad((normalize(x) * g).sum(), x)
    if scale >= 1:  # below 1e-20 the derivative is bounded
        assert torch.allclose(directions_backward(g.clone(), unit, length), exact, rtol=1e-10)


@pytest.mark.parametrize("size", [1e-30, 1e-13, 1.0, 1e18, 1e30])
def test_directions_of_any_length_in_single_precision(size):
    x = torch.randn(2, 3, 7)
    unit, length = directions(x * size)
    assert torch.allclose(unit, torch.nn.functional.normalize(x, dim=2), atol=1e-6)
    assert torch.allclose(length, x.norm(dim=2, keepdim=True) * size, rtol=1e-5)


def test_a_zero_row():
    unit, length = directions(torch.zeros(1, 3))
    assert not unit.any()
    assert not directions_backward(torch.ones(1, 3), unit, length).any()


def test_cosines_of_all_pairs():
    x = torch.randn(2, 5, 3, dtype=torch.float64)
    cos, inverse = gram_cosines(x)
    assert torch.allclose(cos, normalize(x) @ normalize(x).mT)
    assert torch.allclose(inverse, 1 / x.norm(dim=2))


class TestNormalizeRowsOnce:
    """The cache of normalized parameters is never stale, is not saved and is safe to share between threads."""

    def check(self, weight):
        rows, lengths = normalize_rows_once(weight)
        expected = torch.linalg.vector_norm(weight.detach().flatten(1), dim=1)
        torch.testing.assert_close(lengths, expected)
        torch.testing.assert_close(rows.flatten(1), weight.detach().flatten(1) / expected.unsqueeze(1))

    @pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
    @pytest.mark.parametrize(
        "change",
        [
            lambda w: w.mul_(torch.rand_like(w)),
            lambda w: w[1].add_(1.0),
            lambda w: w.data.copy_(torch.randn_like(w)),
            lambda w: setattr(w, "data", torch.randn_like(w)),
            lambda w: torch.optim.SGD([w], lr=0.1).step() if w.grad is not None else w.sub_(0.1),
        ],
        ids=["in place", "one row", "through data", "other data", "step"],
    )
    @torch.no_grad()
    def test_every_change_is_seen(self, change, layout):
        weight = torch.nn.Parameter(torch.randn(6, 3, 2, 2).to(memory_format=layout))
        self.check(weight)
        change(weight)
        self.check(weight)

    @torch.no_grad()
    def test_another_dtype_and_inference_mode(self):
        layer = torch.nn.Linear(5, 4)
        self.check(layer.weight)
        self.check(layer.double().weight)
        with torch.inference_mode():
            self.check(torch.nn.Linear(5, 4).weight)
            kept = torch.nn.Parameter(torch.randn(4, 5), requires_grad=False)
        self.check(layer.weight)
        with torch.inference_mode():
            self.check(kept)

    @torch.no_grad()
    def test_rows_from_inference_mode_serve_training(self):
        layer = torch.nn.Linear(5, 4)
        with torch.inference_mode():
            normalize_rows_once(layer.weight)
        with torch.enable_grad():
            x = torch.randn(2, 5, requires_grad=True)
            (x @ normalize_rows_once(layer.weight)[0].T).sum().backward()
        assert x.grad is not None

    @torch.no_grad()
    def test_nothing_is_saved_and_an_entry_ends_with_its_parameter(self):
        layer = torch.nn.Linear(5, 4)
        normalize_rows_once(layer.weight)
        assert set(vars(layer.weight)) == set()
        assert list(layer.state_dict()) == ["weight", "bias"]
        before = len(fast_norms._unit_rows)
        del layer
        gc.collect()
        assert len(fast_norms._unit_rows) < before

    def test_threads_share_it(self):
        weights = [torch.nn.Parameter(torch.randn(8, 8)) for _ in range(20)]

        def run(_):
            with torch.no_grad():
                for weight in weights:
                    self.check(weight)

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            list(pool.map(run, range(8)))
