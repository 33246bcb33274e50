import pytest
import torch

from hypersphere.objectives.margins import Concentration
from hypersphere.objectives.margins.margin import Context


def context(norms, target=None):
    return Context(norms=torch.as_tensor(norms, dtype=torch.float64), target=target)


def test_between_certainty_and_none():
    margin = Concentration(10.0, 6, gain=1.0)
    cos = torch.linspace(-1, 1, 9, dtype=torch.float64)
    assert torch.allclose(margin.target(cos, context([1e6])), cos, atol=1e-5)
    assert margin.target(cos, context([1e-6])).std() < 1e-5


def test_is_never_below_the_mean_cosine():
    margin = Concentration(10.0, 6, gain=1.0)
    cos = torch.linspace(-1, 1, 21, dtype=torch.float64)
    for norm in (0.0, 1.0, 10.0, 1e3):
        norms = torch.full((21,), norm, dtype=torch.float64)
        assert (margin.penalty(Context(norms=norms, target=cos)) >= -1e-9).all()


def test_derivatives_also_where_the_two_vectors_cancel():
    margin = Concentration(10.0, 6, gain=1.0).double()
    cos = torch.tensor([-0.9, 0.1, 0.8], dtype=torch.float64, requires_grad=True)
    norms = torch.tensor([2.0, 9.0, 30.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda c, n: margin.target(c, Context(norms=n)), (cos, norms))
    assert torch.autograd.gradcheck(lambda c, n: margin.penalty(Context(norms=n, target=c)), (cos, norms))
    edge = torch.tensor([-1.0], requires_grad=True)
    margin.target(edge, Context(norms=torch.tensor([10.0]))).backward()
    assert torch.isfinite(edge.grad).all()


def test_refuses():
    margin = Concentration(10.0, 6)
    with pytest.raises(ValueError, match="needs the norms"):
        margin.target(torch.ones(2))
    with pytest.raises(ValueError, match="needs the norms"):
        margin.penalty(Context(target=torch.ones(2)))
    with pytest.raises(ValueError, match="dim must be"):
        Concentration(10.0, 1)
