"""The contracts of all margins and heads. A new one inherits its contract and gives its float64 formula on θ."""

import copy
import io
import math
import pickle

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

from hypersphere.angular import Cosine, Sigmoid, SquareCosine
from hypersphere.objectives import Annealing, MarginSoftmax, Sample
from hypersphere.objectives.margins import Context, Margin
from hypersphere.objectives.margins.margin import return_no_slope
from tests.export import onnx_outputs
from tests.objectives.parallel_cases import agree, divided_batch, on_shards, results

ANGLES = np.linspace(0, math.pi, 5001)


def waves(theta: np.ndarray, m: float) -> np.ndarray:
    """(−1)^k cos(mθ) − 2k, eq. 2.6, from the angle."""
    k = np.minimum(np.floor(m * theta / math.pi), math.ceil(m) - 1)
    return (-1.0) ** k * np.cos(m * theta) - 2 * k


class WithSlope(torch.autograd.Function):
    """A hook whose derivative is its slope, so that gradcheck can compare the slope with finite differences."""

    @staticmethod
    def forward(ctx, cos, hook):
        value, slope = hook(cos)
        ctx.save_for_backward(slope)
        return value.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0], None


class MarginContract:
    margin: Margin

    def formula(self, theta: np.ndarray) -> np.ndarray:
        raise AssertionError("the contract's class must give the formula")

    def psi(self, theta: np.ndarray, dtype: torch.dtype = torch.float64) -> np.ndarray:
        return self.margin.target(torch.from_numpy(np.cos(theta)).to(dtype)).double().numpy()

    def test_agrees_with_arccos_in_float64(self):
        assert np.abs(self.psi(ANGLES) - self.formula(ANGLES)).max() <= 1e-7

    def test_is_never_easier_than_the_cosine(self):
        assert (self.psi(ANGLES) <= np.cos(ANGLES) + 1e-12).all()

    @pytest.mark.parametrize(("dtype", "slack"), [(torch.float64, 1e-7), (torch.float32, 1e-3)])
    def test_is_continuous_and_decreasing(self, dtype, slack):
        steps = np.diff(self.psi(ANGLES, dtype))
        assert (steps <= slack / 100).all()
        fine = np.diff(self.psi(np.linspace(0, math.pi, 100_001), torch.float64))
        assert np.abs(fine).max() <= 2e-3

    def test_gradient_is_the_derivative(self):
        cos = torch.cos(torch.linspace(0.05, 3.09, 23, dtype=torch.float64)).requires_grad_()
        assert torch.autograd.gradcheck(self.margin.target, cos)
        assert torch.autograd.gradgradcheck(self.margin.target, cos)

    def test_the_slope_in_closed_form_is_the_derivative(self):
        for g in (Cosine(), SquareCosine(), Sigmoid(0.4, learnable="layer")):
            cos = torch.cos(torch.linspace(0.05, 3.09, 23, dtype=torch.float64)).requires_grad_()
            found = self.margin.target_with_slope(cos.detach(), Context(g))
            if isinstance(g, Cosine):
                assert (found is None) == (type(self.margin).target_with_slope is return_no_slope)
            if found is not None:
                assert torch.allclose(found[0], self.margin.target(cos, Context(g)), rtol=1e-12, atol=1e-12)
                assert torch.autograd.gradcheck(
                    lambda c, g=g: WithSlope.apply(c, lambda c: self.margin.target_with_slope(c, Context(g))), cos
                )

    def test_the_slope_on_the_others_is_the_derivative(self):
        context = Context(target=torch.tensor([[0.5], [-0.2]], dtype=torch.float64))
        cos = torch.cos(torch.linspace(0.05, 3.09, 14, dtype=torch.float64)).view(2, 7).requires_grad_()
        found = self.margin.others_with_slope(cos.detach(), context)
        assert (found is None) == (type(self.margin).others_with_slope is return_no_slope)
        if found is not None:
            assert torch.allclose(found[0], self.margin.others(cos, context), rtol=1e-12, atol=1e-12)
            assert torch.autograd.gradcheck(
                lambda c: WithSlope.apply(c, lambda c: self.margin.others_with_slope(c, context)), cos
            )

    def test_the_slope_stays_finite_at_both_poles_and_beyond_rounding(self):
        found = self.margin.target_with_slope(torch.tensor([1.0, -1.0, 1.0000001, -1.0000001]))
        assert found is None or all(torch.isfinite(t).all() for t in found)

    def test_stays_finite_at_both_poles_and_beyond_rounding(self):
        cos = torch.tensor([1.0, -1.0, 1.0000001, -1.0000001], requires_grad=True)
        psi = self.margin.target(cos)
        psi.sum().backward()
        assert torch.isfinite(psi).all()
        assert torch.isfinite(cos.grad).all()

    def test_leaves_the_others_alone(self):
        cos = torch.rand(3, 4)
        assert torch.equal(self.margin.others(cos), cos)

    def test_prints_its_numbers_and_survives_a_copy(self):
        again = pickle.loads(pickle.dumps(copy.deepcopy(self.margin)))
        cos = torch.linspace(-1, 1, 9)
        assert torch.equal(again.target(cos), self.margin.target(cos))
        assert "=" in repr(self.margin) or "NoMargin" in repr(self.margin)


class HeadContract:
    """``head(**options)`` makes a head of 11 classes in 5 dimensions; ψ, φ, g and the scale are formulas on θ.

    A head whose margin needs more than the angle overrides :meth:`target_of`, :meth:`other_of` or :meth:`penalty_of`.
    A head with another comparison overrides :meth:`compare`. A head with running statistics is in evaluation mode, so
    they stay constant.
    """

    scale: float | str = 1.0
    has_bias = True
    smooths = True
    pole_error = 1e-3

    def head(self, **options) -> MarginSoftmax:
        raise AssertionError("the contract's class must make its head")

    def easy(self) -> MarginSoftmax | None:
        """Return the head with a margin that changes nothing, or None if there is no such margin."""
        return None

    def psi(self, theta):
        return self.g(theta)

    def g(self, theta):
        return np.cos(theta)

    def target_of(self, theta, length, label):
        return self.psi(theta)

    def other_of(self, theta, thetas, label, length):
        return self.g(theta)

    def penalty_of(self, length):
        return 0.0

    def compare(self, target, others):
        logits = np.append(others, target)
        peak = logits.max()
        return peak + math.log(np.exp(logits - peak).sum()) - target

    @staticmethod
    def batch(n=6, dtype=torch.float64, seed=0):
        generator = torch.Generator().manual_seed(seed)
        return torch.randn(n, 5, generator=generator, dtype=dtype), torch.randint(0, 11, (n,), generator=generator)

    def brute_force(self, head, x, y) -> list[float]:
        """Compute the loss from angles and formulas, sample by sample and class by class."""
        x, w = x.double().numpy(), head.weight.detach().double().numpy()
        bias = np.zeros(len(w)) if head.bias is None else head.bias.detach().double().expand(len(w)).numpy()
        losses = []
        for features, label in zip(x, y.tolist(), strict=True):
            length, lengths = np.linalg.norm(features), np.linalg.norm(w, axis=1)
            thetas = np.arccos(np.clip(w @ features / (length * lengths), -1, 1))
            logits = np.empty(len(w))
            for j, theta in enumerate(thetas):
                scale = {"feature_norm": length, "norms": length * lengths[j]}.get(self.scale, self.scale)
                mine = j == label
                score = self.target_of(theta, length, label) if mine else self.other_of(theta, thetas, label, length)
                logits[j] = scale * float(score) + bias[j]
            losses.append(self.compare(logits[label], np.delete(logits, label)) + self.penalty_of(length))
        return losses

    @pytest.mark.parametrize("chunk", [None, 4])
    @pytest.mark.parametrize("bias", [False, True])
    def test_value_against_brute_force(self, chunk, bias):
        options = {"bias": bias} if self.has_bias else {}
        head = self.head(chunk=chunk, reduction="none", dtype=torch.float64, **options)
        if bias and head.bias is not None:
            nn.init.normal_(head.bias)
        x, y = self.batch(20)
        assert np.allclose(head(x, y).detach().numpy(), self.brute_force(head, x, y), rtol=1e-7, atol=1e-7)

    @pytest.mark.parametrize("chunk", [None, 4])
    def test_gradcheck(self, chunk):
        head = self.head(chunk=chunk, dtype=torch.float64)
        x, y = self.batch(2)

        def loss(features, weight):
            return torch.func.functional_call(head, {"weight": weight}, (features, y))

        inputs = (x.requires_grad_(), head.weight.detach().clone().requires_grad_())
        assert torch.autograd.gradcheck(loss, inputs)

    @pytest.mark.parametrize(
        "options", [{}, {"bias": True, "label_smoothing": 0.2}, {"gradient": "detached"}, {"sub_centers": 3}], ids=str
    )
    def test_chunks_agree_with_the_dense_path(self, options):
        if not self.smooths:
            options = {k: v for k, v in options.items() if k not in ("label_smoothing", "bias")}
        if options.get("sub_centers") and self.scale == "norms":
            with pytest.raises(ValueError, match='scale="norms"'):
                self.head(**options)
            return
        head = self.head(dtype=torch.float64, **options)
        x, y = self.batch(7)
        dense = gradients(head, x, y, chunk=None)
        for chunk in (1, 4, 11, 64):
            for a, b in zip(dense, gradients(head, x, y, chunk=chunk), strict=True):
                assert torch.allclose(a, b, rtol=1e-12, atol=1e-12)

    def test_no_margin_is_exactly_the_loss_without(self):
        easy = self.easy()
        if easy is None:
            return
        bias = False if easy.bias is None else "shared" if easy.bias.ndim == 0 else True
        options = {"scale": easy.scale, "angular": easy.angular, "comparison": easy.comparison, "bias": bias}
        plain = MarginSoftmax(5, 11, **options)
        plain.load_state_dict(easy.state_dict())
        x, y = self.batch(9, torch.float32)
        # With a hook on the others, cosines are scaled. The plain head scales features, which rounds differently.
        same = type(easy.margin).others is Margin.others or not isinstance(easy.angular, Cosine)
        for a, b in zip(gradients(easy, x, y), gradients(plain, x, y), strict=True):
            assert torch.equal(a, b) if same else torch.allclose(a, b, rtol=1e-5, atol=1e-6)

    def test_the_margin_makes_the_loss_larger(self):
        easy = self.easy()
        if easy is not None:
            head = self.head()
            easy.load_state_dict(head.state_dict(), strict=False)
            x, y = self.batch(50, torch.float32)
            assert head(x, y) > easy(x, y)
            assert torch.equal(head.logits(x), easy.logits(x))
        assert torch.equal(self.head().predict(x := self.batch(9, torch.float32)[0]), self.head().logits(x).argmax(-1))

    @pytest.mark.parametrize("chunk", [None, 4])
    @pytest.mark.parametrize("sign", [1, -1])
    def test_parallel_and_antiparallel(self, sign, chunk):
        head = self.head(chunk=chunk)
        y = torch.arange(11)
        x = sign * 3 * head.weight.detach().clone()
        for value in gradients(head, x, y, chunk=chunk):
            assert torch.isfinite(value).all()
        losses = torch.tensor(self.brute_force(head, x, y))
        assert torch.allclose(head(x, y).double(), losses.mean(), rtol=1e-3, atol=self.pole_error)

    @pytest.mark.parametrize("chunk", [None, 4])
    def test_zero_features_and_zero_weights(self, chunk):
        head = self.head(chunk=chunk)
        x, y = torch.zeros(3, 5), torch.tensor([0, 3, 10])
        with torch.no_grad():
            head.weight[3] = 0
        for value in gradients(head, x, y, chunk=chunk):
            assert torch.isfinite(value).all()
            assert value.abs().max() <= 1e6

    @pytest.mark.parametrize("chunk", [None, 4])
    @pytest.mark.parametrize("length", [1e-30, 1e-20, 1e-5, 1e5, 1e20, 1e30])
    def test_extreme_norms_have_the_right_value_and_a_bounded_gradient(self, length, chunk):
        head = self.head(chunk=chunk)
        x, y = self.batch(8, torch.float32)
        x = length * nn.functional.normalize(x)
        loss, dx, dw = gradients(head, x, y, chunk=chunk)[:3]
        exact = copy.deepcopy(head).double()(x.double(), y)
        assert torch.allclose(loss.double(), exact, rtol=1e-4)
        assert torch.isfinite(dx).all()
        assert dx.abs().max() <= 1e7
        assert torch.isfinite(dw).all()

    @pytest.mark.parametrize("chunk", [None, 4])
    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
    def test_half_inputs_and_autocast_leave_the_weight_alone(self, dtype, chunk):
        head = self.head(chunk=chunk)
        x, y = self.batch(16, torch.float32)
        x = x.to(dtype)
        storage, before = head.weight.data_ptr(), head.weight.detach().clone()
        loss = head(x, y)
        with torch.autocast("cpu", torch.bfloat16):
            mixed = head(x, y)
        assert loss.dtype == mixed.dtype == torch.float32
        assert torch.equal(loss, mixed)
        assert torch.equal(loss, head(x.float(), y))
        assert head.weight.dtype == torch.float32
        assert head.weight.data_ptr() == storage
        assert torch.equal(head.weight, before)
        whole = self.head(chunk=chunk, dtype=dtype)
        whole.weight.data.copy_(head.weight)
        inputs = x.clone().requires_grad_()
        result = whole(inputs, y)
        result.backward()
        assert (result.dtype, inputs.grad.dtype, whole.weight.grad.dtype) == (torch.float32, dtype, dtype)
        assert torch.allclose(result, loss, rtol=2e-2)

    @pytest.mark.parametrize("chunk", [None, 4])
    def test_ignored_samples_do_not_count(self, chunk):
        smoothing = {"label_smoothing": 0.1} if self.smooths else {}
        head = self.head(chunk=chunk, ignore_index=255, **smoothing)
        head.double()  # in float32, products of four and of six rows round differently on some processors
        x, y = self.batch(6, torch.float64)
        y[[1, 4]] = 255
        kept = [0, 2, 3, 5]
        full, part = gradients(head, x, y, chunk=chunk), gradients(head, x[kept], y[kept], chunk=chunk)
        assert torch.allclose(full[0], part[0], rtol=1e-12)
        assert torch.allclose(full[1][kept], part[1], rtol=1e-10, atol=1e-10)
        assert (full[1][[1, 4]] == 0).all()
        assert torch.allclose(full[2], part[2], rtol=1e-10, atol=1e-10)
        assert head(x, torch.full((6,), 255)) == 0

    @pytest.mark.parametrize("label", [-1, 11])
    def test_a_label_out_of_range_is_refused(self, label):
        x, y = self.batch(3, torch.float32)
        y[1] = label
        with pytest.raises(ValueError, match=rf"labels must be in \[0, 10\].*got {label}"):
            self.head()(x, y)

    def test_annealing_moves_only_when_told_and_is_saved(self):
        head = self.head(annealing=Annealing(10, 2))
        x, y = self.batch(9, torch.float32)
        first = head(x, y)
        assert torch.equal(first, head(x, y))
        for _ in range(3):
            head.step()
        resumed = self.head(annealing=Annealing(10, 2))
        resumed.load_state_dict(head.state_dict())
        assert torch.equal(resumed(x, y), head(x, y))
        assert resumed.annealing.value == head.annealing.value < 10
        margin, lam = self.head(), head.annealing.value.item()
        margin.load_state_dict(head.state_dict(), strict=False)
        expected = self.annealed(margin, x, y, lam)
        assert torch.allclose(head(x, y).double(), torch.tensor(expected).mean(), rtol=1e-4)

    def annealed(self, head, x, y, lam):
        of, self.target_of = self.target_of, lambda theta, *a: (lam * self.g(theta) + of(theta, *a)) / (1 + lam)
        try:
            return self.brute_force(head, x, y)
        finally:
            del self.target_of

    def test_copies_pickles_and_safetensors(self):
        head = self.head(annealing=Annealing())
        head.step()
        x, y = self.batch(5, torch.float32)
        loss = head(x, y)
        assert torch.equal(copy.deepcopy(head)(x, y), loss)
        assert torch.equal(pickle.loads(pickle.dumps(head))(x, y), loss)
        buffer = io.BytesIO()
        torch.save(head.state_dict(), buffer)
        buffer.seek(0)
        for state in (
            torch.load(buffer, weights_only=True),
            safetensors.torch.load(safetensors.torch.save(head.state_dict())),
        ):
            other = self.head(annealing=Annealing())
            other.load_state_dict(state)
            assert torch.equal(other(x, y), loss)

    def variants(self):
        """Yield options under which a sharded head must agree with the whole head."""
        several = {"sub_centers": 3, "gradient": "detached", "chunk": 2}
        yield {"annealing": Annealing(10, 2)}
        yield {"bias": True, "label_smoothing": 0.2, "chunk": 3} if self.smooths and self.has_bias else {"chunk": 3}
        yield several if self.scale != "norms" else {"gradient": "detached"}
        yield {"sample": Sample(0.5, unbiased=self.head().comparison.sums)}

    @pytest.mark.untyped
    @pytest.mark.parametrize("processes", [1, 2, 3])
    def test_shards_compute_what_the_whole_head_does(self, processes, pool):
        """Two processes have 6 and 5 of the 11 classes. Three have 4, 4 and 3, and one of them has no samples."""
        for options in self.variants():
            for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-5)):
                head = self.head(dtype=dtype, **options).to(dtype).train()
                if head.bias is not None and head.bias.ndim:
                    nn.init.normal_(head.bias)
                x, y = self.batch(7, dtype)
                y[3] = head.ignore_index
                parts = pool.run(on_shards, head, divided_batch(x, y, processes), processes=processes)
                agree(results(head, x, y), parts, tolerance)

    @pytest.mark.untyped
    def test_compiles_as_one_graph(self):
        torch._dynamo.reset()
        head = self.head(annealing=Annealing())
        x, y = self.batch(5, torch.float32)
        compiled = torch.compile(head, fullgraph=True, backend="aot_eager")
        for a, b in zip(gradients(head, x, y), gradients(compiled, x, y, of=head), strict=True):
            assert torch.allclose(a, b, atol=1e-5)

    @pytest.mark.untyped
    def test_logits_export_to_onnx(self):
        head = self.head()
        x, _ = self.batch(5, torch.float32)
        (exported,) = onnx_outputs(_Logits(head), x)
        assert torch.allclose(exported, head.logits(x), atol=1e-5)


class _Logits(nn.Module):
    def __init__(self, head):
        super().__init__()
        self.head = head

    def forward(self, x):
        return self.head.logits(x)


def gradients(head, x, y, *, of=None, **options):
    """Return the loss and the gradients of the features and of every parameter."""
    module = head if of is None else of
    for name, value in options.items():
        setattr(module, name, value)
    inputs = x.detach().clone().requires_grad_()
    module.zero_grad()
    loss = head(inputs, y)
    loss.sum().backward()
    return [loss.detach(), inputs.grad, *[p.grad.clone() for p in module.parameters()]]
