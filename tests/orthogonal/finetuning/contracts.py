"""Contract tests of fine-tuning methods, for every kind of layer."""

import copy
import pickle

import pytest
import torch
from torch import nn

from hypersphere.orthogonal import (
    TuningMethod,
    count_rotation_parameters,
    finetune,
    merge,
    orthogonality_error,
    rewind,
    unmerge,
)
from hypersphere.orthogonal.parametrization import find_rotated


class Conv1D(nn.Module):
    """The layer of GPT-2 in transformers: a linear layer with a transposed weight."""

    def __init__(self, nf, nx):
        super().__init__()
        self.nf = nf
        self.weight = nn.Parameter(torch.randn(nx, nf) / nx**0.5)
        self.bias = nn.Parameter(torch.randn(nf))

    def forward(self, x):
        return torch.addmm(self.bias, x.reshape(-1, x.shape[-1]), self.weight).view(*x.shape[:-1], self.nf)


class Attention(nn.MultiheadAttention):
    """Self-attention that takes one argument, like the other layers."""

    def forward(self, x):
        return super().forward(x, x[..., : self.kdim], x[..., : self.vdim], need_weights=False)[0]


LAYERS = {
    "linear, inputs turned": (lambda: nn.Linear(16, 40), (3, 5, 16)),
    "linear, more inputs than neurons": (lambda: nn.Linear(16, 40), (9, 5, 16)),
    "linear, weight turned": (lambda: nn.Linear(16, 6, bias=False), (4, 16)),
    "conv1d": (lambda: nn.Conv1d(4, 5, 3, dilation=2), (2, 4, 9)),
    "conv2d, grouped, not square": (lambda: nn.Conv2d(8, 6, (3, 1), stride=2, padding=1, groups=2), (2, 8, 5, 7)),
    "conv3d": (lambda: nn.Conv3d(2, 4, 2, bias=False), (2, 2, 3, 3, 3)),
    "Conv1D": (lambda: Conv1D(40, 16), (3, 5, 16)),
    "attention": (lambda: Attention(16, 2, batch_first=True), (2, 5, 16)),
    "attention, other keys": (lambda: Attention(16, 2, kdim=8, vdim=4, batch_first=True), (2, 5, 16)),
}
every_layer = pytest.mark.parametrize("kind", LAYERS)
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 4e-2}
every_precision = pytest.mark.parametrize("dtype", TOLERANCE, ids=str)


def build(kind, dtype=torch.float32):
    """Return a layer and an input for it, from a fixed seed."""
    make, shape = LAYERS[kind]
    torch.manual_seed(3)
    return make().to(dtype), torch.randn(shape).to(dtype)


def shake(model, size=0.3):
    """Set random rotations."""
    with torch.no_grad():
        for site in find_rotated(model).values():
            for p in site.parametrization.parameters():
                p += size * torch.randn_like(p)
    return model


def dense(layer, parameter="weight"):
    """Return the R of a tuned layer as a matrix in float64."""
    return layer.parametrizations[parameter][0].change.inputs.double().matrix()


class TuningContract:
    """A method, and the standard deviation of its parameters in the tests."""

    method = TuningMethod()
    size = 0.3

    def shake(self, model, factor=1.0):
        return shake(model, factor * self.size)

    def tune(self, model):
        return finetune(model, self.method, classifier=False, generator=torch.Generator().manual_seed(1))

    @every_precision
    @every_layer
    def test_starts_with_what_the_model_computed_bit_for_bit(self, kind, dtype):
        layer, x = build(kind, dtype)
        y = layer(x)
        assert torch.equal(self.tune(layer)(x), y)

    @every_precision
    @every_layer
    def test_merged_is_unmerged(self, kind, dtype):
        layer, x = build(kind, dtype)
        plain = layer(x).detach()
        self.shake(self.tune(layer))
        y = layer(x).detach()
        size = y.abs().max()
        if dtype != torch.bfloat16 and self.method.name != "coft":
            assert (y - plain).abs().max() > 0.01 * size  # the rotation changes the outputs
        kept = merge(layer, keep=True).eval()(x)
        assert (kept - y).abs().max() <= TOLERANCE[dtype] * size
        merged = merge(unmerge(layer))(x)
        assert (merged - y).abs().max() <= TOLERANCE[dtype] * size
        assert not find_rotated(layer)

    @every_layer
    def test_gradients_agree_with_those_through_the_weight(self, kind):
        """Compare a layer that rotates its inputs with one that forms its weight and uses autograd."""
        layer, x = build(kind, torch.float64)
        self.shake(self.tune(layer))
        x.requires_grad_()
        y = layer(x)
        g = torch.randn_like(y)
        learned = [p for p in layer.parameters() if p.requires_grad]
        ours = torch.autograd.grad(y, [x, *learned], g)
        formed = {
            f"{s.parameter}": getattr(s.module, s.parameter) for s in find_rotated(layer).values() if s.module is layer
        }
        plain, _ = build(kind, torch.float64)
        if "out_proj.weight" in dict(plain.named_parameters()):
            formed["out_proj.weight"] = layer.out_proj.weight
        rest = {k: v for k, v in plain.named_parameters() if k not in formed}
        reference = torch.autograd.grad(torch.func.functional_call(plain, {**rest, **formed}, (x,)), [x, *learned], g)
        for a, b in zip(ours, reference, strict=True):
            assert torch.allclose(a, b, atol=1e-10)

    @pytest.mark.parametrize("kind", ["linear, more inputs than neurons", "conv1d", "attention"])
    def test_autocast(self, kind):
        layer, x = build(kind)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = layer(x)
            self.tune(layer)
            assert torch.equal(layer(x), y)
            self.shake(layer)
            result = layer(x)
        result.float().square().sum().backward()
        assert all(p.grad.isfinite().all() and p.grad.abs().max() > 0 for p in layer.parameters() if p.requires_grad)
        exact = layer.double()(x.double())
        assert (result - exact).abs().max() < 0.05 * exact.abs().max()

    @every_layer
    def test_copies_and_files(self, kind):
        layer, x = build(kind)
        self.shake(self.tune(layer))
        y = layer(x)
        for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
            assert torch.equal(other(x), y)
            merge(other)
            assert torch.equal(layer(x), y)
        fresh, _ = build(kind)
        self.tune(fresh).load_state_dict(layer.state_dict())
        assert torch.equal(fresh(x), y)

    @pytest.mark.parametrize("kind", ["linear, inputs turned", "conv2d, grouped, not square"])
    def test_twenty_cycles_do_not_drift(self, kind):
        layer, x = build(kind)
        first = copy.deepcopy(layer)
        self.shake(self.tune(layer))
        y = layer(x)
        for _ in range(20):
            unmerge(merge(layer, keep=True))
        assert torch.equal(layer(x), y)
        merge(layer, undo=True)
        for _ in range(20):
            merge(self.shake(self.tune(layer)), undo=True)
        assert torch.equal(layer.weight, first.weight)
        for _ in range(20):
            merge(self.tune(layer))
        assert torch.equal(layer.weight, first.weight)

    def test_learns(self):
        torch.manual_seed(0)
        layer, x = build("linear, more inputs than neurons")
        target = merge(self.shake(self.tune(copy.deepcopy(layer)), 1.5))(x).detach()
        self.tune(layer)
        optimizer = torch.optim.Adam([p for p in layer.parameters() if p.requires_grad], lr=0.02)
        losses = []
        for _ in range(40):
            optimizer.zero_grad()
            loss = (layer(x) - target).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[-1] < losses[0] * (0.9999 if self.method.name == "coft" else 0.7)

    def test_rewinding_all_the_way_is_the_start_and_half_is_between(self):
        layer, x = build("linear, more inputs than neurons", torch.float64)
        start = self.tune(layer)(x).detach()
        self.shake(layer)
        learned = layer(x).detach()
        half = rewind(copy.deepcopy(layer), 0.5)(x).detach()
        assert torch.allclose(rewind(copy.deepcopy(layer), 1.0)(x), learned, atol=1e-12)
        assert torch.allclose(rewind(copy.deepcopy(layer), 0.0)(x), start, atol=1e-12)
        assert (half - start).norm() < (learned - start).norm()
        assert (half - learned).norm() < (learned - start).norm()

    def test_counts_what_is_learned(self):
        layer = self.tune(nn.Linear(16, 40))
        assert count_rotation_parameters(layer) == sum(p.numel() for p in layer.parameters() if p.requires_grad)
        assert count_rotation_parameters(layer, freedom=True) <= count_rotation_parameters(layer)

    @pytest.mark.untyped
    def test_compiles(self):
        layer, x = build("linear, more inputs than neurons")
        self.shake(self.tune(layer))
        compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
        assert torch.allclose(compiled(x), layer(x), atol=1e-5)


class RotationContract(TuningContract):
    """A method whose change is a rotation of the neurons."""

    @every_layer
    def test_neurons_keep_their_lengths_and_angles(self, kind):
        layer, _ = build(kind, torch.float64)
        before = {key: value.clone() for key, value in layer.state_dict().items()}
        self.shake(self.tune(layer))
        assert orthogonality_error(layer) < 1e-12
        after = merge(layer).state_dict()
        for key, old in before.items():
            new = after[key]
            if old.ndim < 2:
                assert torch.equal(new, old)
                continue
            old, new = ((w.mT if kind == "Conv1D" else w).flatten(1) for w in (old, new))
            self.compare(old, new, 3 if "in_proj" in key else 2 if "grouped" in kind else 1)

    def compare(self, old, new, parts):
        """Check that the Gram matrix of each part is unchanged, because each part has one R."""
        for a, b in zip(old.chunk(parts), new.chunk(parts), strict=True):
            assert torch.allclose(b @ b.T, a @ a.T, atol=1e-12)

    def test_gradcheck(self):
        layer = nn.Linear(8, 40, dtype=torch.float64)
        self.shake(self.tune(layer))
        turn = layer.parametrizations.weight[0].change.inputs
        rows = torch.randn(1, 3, turn.n, dtype=torch.float64, requires_grad=True)
        raw = turn.raw.detach().clone().requires_grad_()

        def forward(raw, rows):
            return torch.func.functional_call(turn, {"raw": raw}, (rows,))

        assert torch.autograd.gradcheck(forward, (raw, rows))

    def test_the_transpose_undoes_it(self):
        layer = self.shake(self.tune(nn.Linear(16, 40, dtype=torch.float64)))
        turn = layer.parametrizations.weight[0].change.inputs
        rows = torch.randn(1, 3, 16, dtype=torch.float64)
        assert torch.allclose(turn(turn(rows), transpose=True), rows, atol=1e-12)
        assert torch.allclose(turn(rows)[0], rows[0] @ turn.matrix()[0].T, atol=1e-12)

    def test_second_derivatives_are_refused(self):
        layer = self.shake(self.tune(nn.Linear(16, 40, dtype=torch.float64)))
        x = torch.randn(3, 16, dtype=torch.float64, requires_grad=True)
        raw = layer.parametrizations.weight[0].change.inputs.raw
        with pytest.raises(RuntimeError, match="cannot be differentiated again"):
            torch.autograd.grad(layer(x).square().sum(), raw, create_graph=True)
