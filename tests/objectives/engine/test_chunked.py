import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hypersphere.objectives import ArcFace, GASoftmax, SphereFace, SSoftmax
from hypersphere.objectives.engine import chunked as module
from hypersphere.objectives.engine.chunked import gather_target_rows
from hypersphere.objectives.engine.problem import choose_chunk
from hypersphere.objectives.functional import margin_softmax
from tests.objectives.contracts import gradients

CPU = torch.device("cpu")


@settings(max_examples=40)
@given(
    n=st.integers(1, 9),
    classes=st.integers(2, 40),
    chunk=st.integers(1, 50),
    d=st.integers(1, 6),
    seed=st.integers(0, 99),
)
def test_any_shape_agrees_with_the_dense_path(n, classes, chunk, d, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, d, generator=generator, dtype=torch.float64)
    w = torch.randn(classes, d, generator=generator, dtype=torch.float64)
    y = torch.randint(0, classes, (n,), generator=generator)
    results = []
    for size in (None, chunk):
        a, b = x.clone().requires_grad_(), w.clone().requires_grad_()
        loss = margin_softmax(a, b, y, scale=20.0, chunk=size)
        loss.backward()
        results.append((loss, a.grad, b.grad))
    for dense, large in zip(*results, strict=True):
        assert torch.allclose(dense, large, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", [ArcFace, GASoftmax, SphereFace])
@pytest.mark.parametrize("keep", [0, module.MAX_KEPT_LOGITS])
def test_a_head_of_many_classes_in_float32(kind, keep, monkeypatch):
    monkeypatch.setattr(module, "MAX_KEPT_LOGITS", keep)
    head = kind(16, 5000)
    x, y = torch.randn(64, 16), torch.randint(0, 5000, (64,))
    assert choose_chunk("auto", 64, 5000, CPU) == 4096
    large = gradients(head, x, y, chunk="auto")
    dense = gradients(head.double(), x.double(), y, chunk=None)
    for a, b in zip(large, dense, strict=True):
        assert torch.allclose(a.double(), b, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("keep", [0, module.MAX_KEPT_LOGITS])
def test_backward_twice_gives_the_same_gradient(keep, monkeypatch):
    monkeypatch.setattr(module, "MAX_KEPT_LOGITS", keep)
    for head in (SSoftmax(5, 11, chunk=4, bias=True), GASoftmax(5, 11, chunk=4)):
        x, y = torch.randn(6, 5, requires_grad=True), torch.randint(0, 11, (6,))
        loss = head(x, y)
        first = torch.autograd.grad(loss, (x, head.weight), retain_graph=True)
        second = torch.autograd.grad(loss, (x, head.weight))
        assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_a_second_derivative_is_refused_and_the_dense_path_has_it():
    x, y = torch.randn(3, 5, requires_grad=True), torch.tensor([0, 1, 2])
    head = SSoftmax(5, 11, chunk=4)
    with pytest.raises(RuntimeError, match="chunk=None can be differentiated twice"):
        torch.autograd.grad(head(x, y), x, create_graph=True)
    head.chunk = None
    (gradient,) = torch.autograd.grad(head(x, y), x, create_graph=True)
    gradient.sum().backward()
    assert torch.isfinite(x.grad).all()


@pytest.mark.parametrize("frozen", ["weight", "features"])
def test_what_is_frozen_gets_no_gradient(frozen):
    for head in (SSoftmax(5, 11, chunk=4), GASoftmax(5, 11, chunk=4)):
        x, y = torch.randn(6, 5), torch.randint(0, 11, (6,))
        full = gradients(head, x, y)
        head.weight.requires_grad_(frozen != "weight")
        inputs = x.clone().requires_grad_(frozen != "features")
        head.zero_grad()
        head(inputs, y).backward()
        if frozen == "weight":
            assert head.weight.grad is None
            assert torch.allclose(inputs.grad, full[1], atol=1e-6)
        else:
            assert torch.allclose(head.weight.grad, full[2], atol=1e-6)


def test_bfloat16_products_are_close_and_only_on_request():
    x, y = torch.randn(64, 32), torch.randint(0, 3000, (64,))
    head = ArcFace(32, 3000, scale=16.0)
    exact = gradients(head, x, y)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(head(x, y), exact[0])
    head.matmul_dtype = torch.bfloat16
    low = gradients(head, x, y)
    assert torch.allclose(low[0], exact[0], rtol=1e-2)
    for a, b in zip(low[1:], exact[1:], strict=True):
        assert 0 < (a - b).norm() <= 0.03 * b.norm()


@pytest.mark.untyped
@pytest.mark.filterwarnings(
    "ignore:The .grad attribute of a Tensor:UserWarning"
)  # the compiler reads .grad of its inputs
def test_chunks_run_outside_of_a_compiled_graph():
    torch._dynamo.reset()
    head = ArcFace(5, 11, chunk=4)
    x, y = torch.randn(6, 5), torch.randint(0, 11, (6,))
    compiled = torch.compile(head, backend="aot_eager")
    for a, b in zip(gradients(head, x, y), gradients(compiled, x, y, of=head), strict=True):
        assert torch.allclose(a, b, atol=1e-6)


def test_the_targets_logit_does_not_hide_the_others():
    """All of the mass is on the target. The sum over the others must still be exact: a margin can lower the target."""
    head = SphereFace(2, 3, m=4, scale=1000.0, chunk=1)
    head.weight.data = torch.tensor([[1.0, 0.0], [-1.0, 0.1], [-1.0, -0.1]])
    x, y = torch.tensor([[1.0, 0.5]]), torch.tensor([0])
    exact = SphereFace(2, 3, m=4, scale=1000.0, chunk=None).double()
    exact.weight.data = head.weight.data.double()
    assert torch.allclose(head(x, y).double(), exact(x.double(), y), rtol=1e-5)


def test_rows_are_gathered_and_the_weight_handed_on():
    weight = torch.randn(6, 3, requires_grad=True)
    rows, rest = gather_target_rows(weight, torch.tensor([2, 0, 2]), 2)
    assert torch.equal(rows, weight.view(3, 2, 3)[[2, 0, 2]])
    (gradient,) = torch.autograd.grad(rows.sum() + (rest * rest).sum(), weight)
    expected = 2 * weight.detach()
    expected[4:] += 2
    expected[:2] += 1
    assert torch.allclose(gradient, expected)


def test_auto_is_dense_for_few_logits_and_fits_the_cache_for_many():
    assert choose_chunk("auto", 128, 100, CPU) is None
    assert choose_chunk("auto", 128, 1000, CPU) == 2048
    assert choose_chunk("auto", 10**7, 1000, CPU) == 1
    assert choose_chunk("auto", 128, 10**6, torch.device("meta")) == 131072
    assert choose_chunk(None, 128, 10**6, CPU) is None
    assert choose_chunk(7, 1, 2, CPU) == 7


@pytest.mark.untyped
@pytest.mark.parametrize("chunk", [0, -1, "large", 1.5, True])
def test_a_bad_chunk_is_refused(chunk):
    with pytest.raises(ValueError, match="chunk must be"):
        choose_chunk(chunk, 1, 2, CPU)
