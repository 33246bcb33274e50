"""The contracts of all losses over pairs or proxies. A new one inherits its contract and gives float64 loops."""

import copy
import io
import pickle

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

DIM, CLASSES = 4, 5
INHERITED = settings(max_examples=12, suppress_health_check=[HealthCheck.differing_executors])


def batch(n=14, dtype=torch.float64, seed=0):
    """Return random features with several samples per class."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, DIM, generator=generator, dtype=torch.float64)
    return x.to(dtype), torch.randint(0, CLASSES, (n,), generator=generator)


def cosines(x, w=None):
    """Compute cosines with numpy, one norm at a time."""
    x = np.stack([row / np.linalg.norm(row) for row in x.detach().double().numpy()])
    w = x if w is None else np.stack([row / np.linalg.norm(row) for row in w.detach().double().numpy()])
    return x @ w.T


def gradients(loss, x, y):
    """Return the loss and its gradients with respect to the features and every parameter."""
    x = x.detach().clone().requires_grad_()
    loss.zero_grad()
    value = loss(x, y)
    value.backward()
    return [value.detach(), x.grad, *[p.grad.clone() for p in loss.parameters()]]


class LossContract:
    needs_positives = True  # without a positive pair the loss is 0

    def make(self, **options) -> nn.Module:
        raise AssertionError("the contract's class must make its loss")

    def brute_force(self, loss, x, y) -> float:
        raise AssertionError("the contract's class must give the formula")

    def double(self, **options):
        torch.manual_seed(5)
        return self.make(**options).double()

    @INHERITED
    @given(st.lists(st.integers(0, CLASSES - 1), min_size=1, max_size=9), st.integers(0, 99))
    def test_value_against_brute_force(self, labels, seed):
        loss = self.double()
        x, y = batch(len(labels), seed=seed)[0], torch.tensor(labels)
        assert np.isclose(loss(x, y).item(), self.brute_force(loss, x, y), rtol=1e-9, atol=1e-9)

    def test_gradcheck(self):
        loss = self.double()
        x, y = batch(7, seed=3)
        names = [name for name, _ in loss.named_parameters()]

        def value(x, *parameters):
            return torch.func.functional_call(loss, dict(zip(names, parameters, strict=True)), (x, y))

        inputs = [x, *[p.detach().clone() for p in loss.parameters()]]
        assert torch.autograd.gradcheck(value, [v.requires_grad_() for v in inputs])

    @pytest.mark.parametrize("chunk", [1, 3, 64])
    def test_blocks_agree_with_all_at_once(self, chunk):
        x, y = batch(13)
        whole = gradients(self.double(chunk=None), x, y)
        for a, b in zip(whole, gradients(self.double(chunk=chunk), x, y), strict=True):
            assert torch.allclose(a, b, rtol=1e-11, atol=1e-11)
        with torch.no_grad():
            assert torch.allclose(self.double(chunk=chunk)(x, y), whole[0], rtol=1e-11)

    def test_float32_agrees_with_float64(self):
        for seed in range(3):
            loss = self.double()
            x, y = batch(40, seed=seed)
            exact, single = gradients(loss, x, y), gradients(loss.float(), x.float(), y)
            for a, b in zip(exact, single, strict=True):
                assert torch.allclose(a, b.double(), rtol=2e-4, atol=2e-5)

    def test_order_and_lengths_do_not_matter(self):
        loss = self.double()
        x, y = batch()
        order = torch.randperm(len(x))
        lengths = torch.rand(len(x), 1, dtype=x.dtype) * 10 + 0.1
        value, dx = gradients(loss, x, y)[:2]
        again, dagain = gradients(loss, (lengths * x)[order], y[order])[:2]
        assert torch.allclose(value, again, rtol=1e-10)
        assert torch.allclose(dagain * lengths[order], dx[order], rtol=1e-8, atol=1e-10)

    @pytest.mark.parametrize("chunk", [None, 4])
    @pytest.mark.parametrize("length", [0.0, 1e-30, 1e-20, 1e20, 1e30])
    def test_extreme_lengths(self, length, chunk):
        x, y = batch(10, torch.float32)
        x = nn.functional.normalize(x)
        x[::2] *= length
        loss = self.double(chunk=chunk).float()
        values = gradients(loss, x, y)
        for value in values:
            assert torch.isfinite(value).all()
            assert value.abs().max() <= 1e9
        if length > 0:
            expected = self.brute_force(loss, x, y)
            assert np.isclose(values[0].item(), expected, rtol=1e-4, atol=1e-5)

    @pytest.mark.parametrize("chunk", [None, 2])
    def test_parallel_antiparallel_and_duplicates(self, chunk):
        x, _ = batch(4, torch.float32)
        x = torch.cat([x, 3 * x, x, -x, -2 * x])
        for y in (torch.arange(4).repeat(5), torch.arange(5).repeat(4), torch.zeros(20, dtype=torch.long)):
            for value in gradients(self.double(chunk=chunk).float(), x, y):
                assert torch.isfinite(value).all()

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
    def test_half_precision_is_computed_in_float32(self, dtype):
        loss = self.double().float()
        x, y = batch(20, dtype)
        value, dx = gradients(loss, x, y)[:2]
        assert value.dtype == torch.float32
        assert dx.dtype == dtype
        assert torch.equal(value, loss(x.float(), y).detach())
        with torch.autocast("cpu", torch.bfloat16):
            assert torch.equal(loss(x, y).detach(), value)
        assert all(p.dtype == torch.float32 for p in loss.parameters())

    def test_without_positives(self):
        x, y = batch(CLASSES)[0], torch.arange(CLASSES)
        loss = self.double()
        value, dx = gradients(loss, x, y)[:2]
        assert torch.isfinite(dx).all()
        assert np.isclose(value.item(), self.brute_force(loss, x, y), rtol=1e-9, atol=1e-9)
        if self.needs_positives:
            assert value == 0
            assert (dx == 0).all()

    def test_one_class_alone_and_no_samples(self):
        loss = self.double()
        x, y = batch(6)
        y = torch.zeros_like(y)
        assert all(torch.isfinite(v).all() for v in gradients(loss, x, y))
        assert np.isclose(loss(x, y).item(), self.brute_force(loss, x, y), rtol=1e-9, atol=1e-9)
        assert all(torch.isfinite(v).all() for v in gradients(loss, x[:0], y[:0]))

    def test_ignored_samples_do_not_count(self):
        loss = self.double(ignore_index=-1)
        x, y = batch()
        y[[1, 4, 9]] = -1
        kept = y >= 0
        full, part = gradients(loss, x, y), gradients(loss, x[kept], y[kept])
        assert torch.allclose(full[0], part[0], rtol=1e-12)
        assert torch.allclose(full[1][kept], part[1], rtol=1e-10)
        assert (full[1][~kept] == 0).all()

    def test_copies_pickles_and_state(self):
        loss = self.double()
        x, y = batch()
        value = loss(x, y)
        assert torch.equal(copy.deepcopy(loss)(x, y), value)
        assert torch.equal(pickle.loads(pickle.dumps(loss))(x, y), value)
        buffer = io.BytesIO()
        torch.save(loss.state_dict(), buffer)
        buffer.seek(0)
        other = self.make().double()
        other.load_state_dict(torch.load(buffer, weights_only=True))
        assert torch.equal(other(x, y), value)

    def test_descent_lowers_it(self):
        loss = self.double()
        x, y = batch(20)
        x.requires_grad_()
        optimizer = torch.optim.Adam([x, *loss.parameters()], lr=0.05)
        before = loss(x, y).item()
        for _ in range(60):
            optimizer.zero_grad()
            loss(x, y).backward()
            optimizer.step()
        assert loss(x, y).item() < before

    def test_prints_its_numbers(self):
        assert "=" in repr(self.make())

    @pytest.mark.untyped
    def test_refuses(self):
        x, y = batch()
        loss = self.double()
        with pytest.raises(ValueError, match="labels must be 14 integers"):
            loss(x, y[:3])
        with pytest.raises(ValueError, match="labels must be 14 integers"):
            loss(x, y.double())
        with pytest.raises(ValueError, match="features must be floating-point"):
            loss(x[0], y)
        with pytest.raises(ValueError, match="chunk must be"):
            self.make(chunk=0)

    def refuses(self, **options):
        """Assert that each option alone raises an error that names it."""
        for name, value in options.items():
            with pytest.raises(ValueError, match=name):
                self.make(**{name: value})


class PairContract(LossContract):
    """A loss over pairs, which compares samples with each other or with references."""

    def test_references_are_compared_without_themselves(self):
        """With references that share no sample, blocks and all pairs at once give the same gradients."""
        loss = self.double()
        x, y = batch(9)
        z, t = batch(12, seed=1)
        value, dx, dz = both_gradients(loss, x, y, z, t)
        assert torch.isfinite(value)
        chunked = self.double(chunk=2)
        for a, b in zip((value, dx, dz), both_gradients(chunked, x, y, z, t), strict=True):
            assert torch.allclose(a, b, rtol=1e-10, atol=1e-12)

    @pytest.mark.untyped
    def test_refuses_references_that_do_not_fit(self):
        x, y = batch()
        loss = self.double()
        with pytest.raises(ValueError, match="reference_labels were given without references"):
            loss(x, y, None, y)
        with pytest.raises(ValueError, match="agree in dimension"):
            loss(x, y, x[:, :2], y)
        with pytest.raises(ValueError, match="references must be floating-point"):
            loss(x, y, y, y)


def both_gradients(loss, x, y, z, t):
    x, z = x.clone().requires_grad_(), z.clone().requires_grad_()
    value = loss(x, y, z, t)
    return [value.detach(), *torch.autograd.grad(value, (x, z), allow_unused=True, materialize_grads=True)]


class ProxyContract(LossContract):
    """A loss with class proxies, which is also a classifier."""

    needs_positives = False

    def test_is_a_classifier(self):
        from hypersphere.neurons import Classifier, output_layer

        head = self.make()
        assert isinstance(head, Classifier)
        assert head.weight.shape == (CLASSES * head.sub_centers, DIM)
        assert output_layer(nn.Sequential(nn.Linear(DIM, DIM), head)) == "1"
        x, _ = batch(9, torch.float32)
        assert head.logits(x).shape == (9, CLASSES)
        assert torch.equal(head.predict(x), head.logits(x).argmax(-1))

    def test_a_proxy_is_its_own_class(self):
        head = self.double()
        rows = head.weight.detach()[:: head.sub_centers]
        assert head.predict(5 * rows)[0] == 0 or head.sub_centers > 1
        if head.sub_centers == 1:
            assert torch.equal(head.predict(5 * rows), torch.arange(CLASSES))

    @pytest.mark.parametrize("label", [-1, CLASSES])
    def test_a_label_out_of_range_is_refused(self, label):
        x, y = batch()
        y[2] = label
        with pytest.raises(ValueError, match=rf"labels must be in \[0, {CLASSES - 1}\].*got {label}"):
            self.double()(x, y)

    def test_zero_and_extreme_proxies(self):
        x, y = batch(10, torch.float32)
        for length in (0.0, 1e-20, 1e20):
            head = self.double().float()
            with torch.no_grad():
                head.weight[::2] *= length
            for value in gradients(head, x, y):
                assert torch.isfinite(value).all()

    def test_refuses_sizes(self):
        for sizes in ((0, 5), (4, 1)):
            with pytest.raises(ValueError, match="num_classes ≥ 2"):
                type(self.make())(*sizes)
