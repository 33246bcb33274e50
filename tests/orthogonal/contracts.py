"""Contract tests of orthogonal training methods, for every kind of layer."""

import copy
import io
import pickle

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

from hypersphere.neurons import neurons
from hypersphere.orthogonal import merge, orthogonality_error, overparameterize

LAYERS = {
    "linear square": (lambda: nn.Linear(6, 6), (4, 6)),
    "linear wide": (lambda: nn.Linear(9, 4), (4, 9)),
    "linear tall": (lambda: nn.Linear(4, 9, bias=False), (4, 4)),
    "conv1d": (lambda: nn.Conv1d(4, 5, 3), (2, 4, 6)),
    "conv2d": (lambda: nn.Conv2d(2, 7, 3, stride=2, padding=1), (2, 2, 6, 6)),
    "conv2d grouped": (lambda: nn.Conv2d(4, 6, (3, 1), groups=2), (2, 4, 5, 5)),
    "conv3d": (lambda: nn.Conv3d(2, 4, 2, bias=False), (2, 2, 3, 3, 3)),
}
every_layer = pytest.mark.parametrize("kind", LAYERS)
one_of_each = pytest.mark.parametrize("kind", ["linear wide", "conv2d grouped"])


def build(kind):
    """Return a layer with Gaussian neurons and an input for it, from a fixed seed."""
    make, shape = LAYERS[kind]
    torch.manual_seed(3)
    layer = make()
    nn.init.normal_(layer.weight, std=0.3)
    return layer, torch.randn(shape)


def energy(weight):
    """Compute E = Σ_{i≠j} ‖v̂_i − v̂_j‖⁻¹ with two loops in float64 (7.2)."""
    rows = [row / row.norm() for row in weight.detach().flatten(1).double()]
    return sum(float(1 / (a - b).norm()) for i, a in enumerate(rows) for j, b in enumerate(rows) if i != j)


class MethodContract:
    """A method of learning R, for every kind of layer."""

    method = "cayley"

    def optimizers(self, model):
        return [torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=1e-2)]

    def train(self, layer, x, steps=50):
        target = torch.randn(layer(x).shape, generator=torch.Generator().manual_seed(5))
        optimizers = self.optimizers(layer)
        losses = []
        for _ in range(steps):
            loss = (layer(x) - target).square().mean()
            losses.append(loss.item())
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
        return losses

    def trained(self, kind):
        layer, x = build(kind)
        self.train(overparameterize(layer, self.method), x, 3)
        return layer, x

    def test_training_lowers_the_loss(self):
        layer, x = build("conv2d")
        losses = self.train(overparameterize(layer, self.method), x, 20)
        assert min(losses[-5:]) < losses[0]

    @one_of_each
    def test_only_r_learns(self, kind):
        layer, x = build(kind)
        before = layer.weight.detach().clone()
        overparameterize(layer, self.method)
        names = {name for name, _ in layer.named_parameters()} - {"bias"}
        assert names == {"parametrizations.weight.0.tasks.default.raw"}
        self.train(layer, x, 2)
        assert torch.equal(layer.parametrizations.weight.original, before)
        assert not torch.allclose(layer.weight, before)

    @every_layer
    def test_the_identity_start_computes_what_the_layer_did(self, kind):
        layer, x = build(kind)
        y = layer(x)
        assert (overparameterize(layer, self.method, start="identity")(x) - y).abs().max() <= 1e-6

    @one_of_each
    def test_from_the_identity_one_small_step_is_a_small_change(self, kind):
        layer, x = build(kind)
        y = layer(x).detach()
        overparameterize(layer, self.method, start="identity")
        with torch.no_grad():
            raw = layer.parametrizations.weight[0].rotation.raw
            raw += 1e-4 * torch.randn(raw.shape)
        assert 0 < (layer(x) - y).abs().max() <= 1e-2

    @every_layer
    def test_merged_is_unmerged(self, kind):
        plain, _ = build(kind)
        layer, x = self.trained(kind)
        y = layer(x).detach()
        merged = merge(layer)
        assert merged is layer
        assert (merged(x) - y).abs().max() <= 1e-5 * y.abs().max()
        assert type(merged) is type(plain)
        assert {k: v.shape for k, v in merged.state_dict().items()} == {
            k: v.shape for k, v in plain.state_dict().items()
        }
        assert list(merged.state_dict()) == list(plain.state_dict())
        assert [p.requires_grad for p in merged.parameters()] == [p.requires_grad for p in plain.parameters()]
        assert not hasattr(merged, "parametrizations")

    @every_layer
    def test_twenty_cycles_do_not_drift(self, kind):
        layer, x = build(kind)
        y = layer(x)
        for _ in range(20):
            layer = merge(overparameterize(layer, self.method, start="identity"))
        assert (layer(x) - y).abs().max() <= 1e-4 * y.abs().max()

    @one_of_each
    def test_a_checkpoint_restores_a_model_of_another_seed(self, kind):
        layer, x = self.trained(kind)
        torch.manual_seed(99)
        other = overparameterize(LAYERS[kind][0](), self.method)
        assert not torch.allclose(other(x), layer(x))
        other.load_state_dict(layer.state_dict())
        assert torch.equal(other(x), layer(x))

    @one_of_each
    def test_copies_and_pickles(self, kind):
        layer, x = self.trained(kind)
        buffer = io.BytesIO()
        torch.save(layer, buffer)
        buffer.seek(0)
        y = layer(x)
        for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), torch.load(buffer, weights_only=False)):
            assert torch.equal(other(x), layer(x))
            self.train(other, x, 1)
            assert not torch.allclose(other(x), layer(x))
            assert list(merge(other).state_dict()) == list(build(kind)[0].state_dict())
            assert torch.equal(layer(x), y)

    @one_of_each
    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
    def test_other_dtypes(self, kind, dtype):
        layer, x = build(kind)
        layer, x = layer.to(dtype), x.to(dtype)
        overparameterize(layer, self.method, start="identity")
        assert layer.parametrizations.weight[0].rotation.raw.dtype == torch.promote_types(dtype, torch.float32)
        assert layer.weight.dtype == dtype
        layer(x).square().mean().backward()
        torch.optim.SGD(layer.parameters(), lr=0.1).step()
        assert all(torch.isfinite(p).all() for p in layer.parameters())
        y = layer(x)
        assert torch.allclose(merge(layer)(x), y)
        assert layer.weight.dtype == dtype

    @one_of_each
    def test_autocast_leaves_the_weight_alone(self, kind):
        layer, x = self.trained(kind)
        weight = layer.weight
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert torch.equal(layer.weight, weight)
            layer(x).float().square().mean().backward()
        assert torch.isfinite(layer.parametrizations.weight[0].rotation.raw.grad).all()

    def test_the_cache_computes_r_once(self):
        layer, _ = build("linear wide")
        overparameterize(layer, self.method)
        with parametrize.cached():
            assert layer.weight is layer.weight

    @pytest.mark.untyped
    def test_compiles_as_one_graph(self):
        torch._dynamo.reset()
        layer, x = build("conv2d")
        overparameterize(layer, self.method)
        compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
        compiled(x).square().sum().backward()
        raw = layer.parametrizations.weight[0].rotation.raw
        inside, raw.grad = raw.grad, None
        layer(x).square().sum().backward()
        assert torch.allclose(compiled(x), layer(x), atol=1e-5)
        assert torch.allclose(inside, raw.grad, rtol=1e-3, atol=1e-4)


class OrthogonalContract(MethodContract):
    """A method that keeps R orthogonal, so the energy of the neurons cannot change."""

    error = 1e-5

    @every_layer
    def test_fifty_steps_with_weight_decay_keep_orthogonality_and_energy(self, kind):
        layer, x = build(kind)
        before = energy(layer.weight)
        overparameterize(layer, self.method)
        self.train(layer, x)
        assert orthogonality_error(layer) <= self.error
        assert abs(energy(layer.weight) - before) <= 1e-4 * before
        assert torch.allclose(
            neurons(layer).norm(dim=1), layer.parametrizations.weight.original.flatten(1).norm(dim=1), rtol=1e-3
        )

    @pytest.mark.parametrize(("blocks", "share"), [(2, False), (4, True)])
    def test_blocks_keep_orthogonality_and_energy(self, blocks, share):
        layer, x = build("conv1d")
        before = energy(layer.weight)
        overparameterize(layer, self.method, blocks=blocks, share_blocks=share)
        self.train(layer, x)
        assert orthogonality_error(layer) <= self.error
        assert abs(energy(layer.weight) - before) <= 1e-4 * before

    def test_twenty_trained_cycles_keep_the_angles_between_neurons(self):
        layer, x = build("conv2d")
        gram = neurons(layer) @ neurons(layer).mT
        for _ in range(20):
            self.train(overparameterize(layer, self.method), x, 1)
            merge(layer)
        assert (neurons(layer) @ neurons(layer).mT - gram).abs().max() <= 1e-4 * gram.abs().max()

    def test_a_step_with_large_weight_decay_keeps_r_orthogonal(self):
        layer, x = build("linear wide")
        overparameterize(layer, self.method)
        optimizer = torch.optim.AdamW(
            [p for p in layer.parameters() if p.ndim < 2] or [nn.Parameter(torch.zeros(1))], lr=1.0, weight_decay=1.0
        )
        if self.method != "ogd":  # OGD alone updates R
            optimizer = torch.optim.AdamW(layer.parameters(), lr=1.0, weight_decay=1.0)
        layer(x).square().sum().backward()
        optimizer.step()
        assert orthogonality_error(layer) <= self.error
        assert torch.isfinite(layer.weight).all()
        assert torch.allclose(neurons(layer).norm(dim=1), layer.parametrizations.weight.original.norm(dim=1), rtol=1e-4)
