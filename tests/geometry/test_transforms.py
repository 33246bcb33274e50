"""Every function of the geometry under torch.compile, vmap and autocast."""

import pytest
import torch

from hypersphere import geometry as g

PAIR = {
    "cosine": g.cosine,
    "angle": g.angle,
    "geodesic_distance": g.geodesic_distance,
    "tangent": g.tangent,
    "exp_map": g.exp_map,
    "log_map": g.log_map,
    "slerp": lambda x, w: g.slerp(x, w, 0.3),
    "normalize": lambda x, w: g.normalize(x + w),
    "norm": lambda x, w: g.norm(x + w),
    "chebyshev": lambda x, w: g.chebyshev(torch.tanh(x * w), 4),
    "chebyshev_real": lambda x, w: g.chebyshev(torch.tanh(x * w), 2.5),
    "arccos": lambda x, w: g.arccos(torch.tanh(x * w)),
    "arcsin": lambda x, w: g.arcsin(torch.tanh(x * w)),
    "sine": lambda x, w: g.sine(torch.tanh(x * w)),
}


@pytest.mark.untyped
@pytest.mark.parametrize("name", PAIR)
def test_compiles_as_one_graph(name):
    torch._dynamo.reset()
    f = PAIR[name]
    x, w = torch.randn(2, 5, 4)
    x.requires_grad_()
    compiled, eager = torch.compile(f, fullgraph=True, backend="aot_eager")(x, w), f(x, w)
    assert torch.allclose(compiled, eager, atol=1e-6)
    (a,), (b,) = (torch.autograd.grad(y.sum(), x) for y in (compiled, eager))
    assert torch.allclose(a, b, atol=1e-5)


@pytest.mark.skipif(torch.__version__.startswith("2.6."), reason="inductor of PyTorch 2.6 has a wrong gradient here")
@pytest.mark.untyped
def test_the_default_compiler_agrees():
    torch._dynamo.reset()

    def f(x, w):
        return g.angle(x, w) + g.chebyshev(g.cosine(x, w), 4) + g.sine(g.cosine(x, w)) + g.norm(x)

    x, w = torch.randn(2, 5, 4)
    x.requires_grad_()
    compiled, eager = torch.compile(f, fullgraph=True)(x, w), f(x, w)
    assert torch.allclose(compiled, eager, atol=1e-5)
    (a,), (b,) = (torch.autograd.grad(y.sum(), x) for y in (compiled, eager))
    assert torch.allclose(a, b, atol=1e-4)


@pytest.mark.untyped
def test_pairwise_compiles_as_one_graph():
    x, w = torch.randn(5, 4), torch.randn(3, 4)
    for f in (g.angle, g.cosine):
        compiled = torch.compile(lambda x, w, f=f: f(x, w, pairwise=True), fullgraph=True, backend="aot_eager")(x, w)
        assert torch.allclose(compiled, f(x, w, pairwise=True), atol=1e-6)


@pytest.mark.untyped
@pytest.mark.parametrize("name", PAIR)
def test_vmap_is_a_loop(name):
    f = PAIR[name]
    x, w = torch.randn(2, 6, 5, 4)
    assert torch.allclose(
        torch.func.vmap(f)(x, w), torch.stack([f(a, b) for a, b in zip(x, w, strict=True)]), atol=1e-6
    )
    slope = torch.func.vmap(torch.func.grad(lambda a, b: f(a, b).sum()))(x, w)
    assert torch.isfinite(slope).all()


@pytest.mark.parametrize("name", PAIR)
def test_autocast_changes_nothing(name):
    f = PAIR[name]
    x, w = torch.randn(2, 5, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = f(x, w)
    assert inside.dtype == torch.float32
    assert torch.equal(inside, f(x, w))
