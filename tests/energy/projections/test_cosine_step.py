import pytest
import torch

from hypersphere.energy.projections.cosine_step import cosine_step
from hypersphere.energy.projections.random import project

LR = 0.7


def tensors(*shapes):
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(s, dtype=torch.float64, generator=generator).requires_grad_() for s in shapes]


def by_pairs(basis, weights):
    """Differentiate a loop over the pairs by autograd, with cosines of torch."""
    losses = []
    for weight in weights:
        _, n, _ = weight.shape
        i, j = torch.triu_indices(n, n, 1)
        before = torch.cosine_similarity(weight[:, i], weight[:, j], dim=-1)
        z = project(weight, basis)
        after = torch.cosine_similarity(z[:, :, i], z[:, :, j], dim=-1)
        losses.append((before - after).square().mean())
    (gradient,) = torch.autograd.grad(torch.stack(losses).mean(), basis, create_graph=True)
    return basis - LR * gradient


SHAPES = [
    [(1, 3, 6), (1, 5, 6)],
    [(2, 3, 6), (1, 5, 6)],
    [(1, 3, 6), (2, 4, 6)],
    [(2, 2, 5), (2, 4, 5), (1, 7, 5)],
]


@pytest.mark.parametrize("shapes", SHAPES)
def test_the_step_and_its_gradient_are_those_of_all_pairs(shapes):
    basis, *weights = tensors(*shapes)
    ours, theirs = cosine_step(basis, weights, LR), by_pairs(basis, weights)
    assert torch.allclose(ours, theirs, rtol=1e-10, atol=1e-12)
    g = torch.randn_like(ours)
    inputs = [basis, *weights]
    for a, b in zip(torch.autograd.grad(ours, inputs, g), torch.autograd.grad(theirs, inputs, g), strict=True):
        assert torch.allclose(a, b, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("shapes", SHAPES)
def test_gradcheck(shapes):
    inputs = tensors(*shapes)
    assert torch.autograd.gradcheck(lambda basis, *weights: cosine_step(basis, list(weights), LR), inputs)


def test_gradgradcheck():
    inputs = tensors((1, 2, 4), (1, 3, 4))
    assert torch.autograd.gradgradcheck(lambda basis, weight: cosine_step(basis, [weight], LR), inputs)


def test_two_steps_are_differentiated_through_both():
    inputs = tensors((1, 2, 4), (1, 3, 4))
    assert torch.autograd.gradcheck(
        lambda basis, weight: cosine_step(cosine_step(basis, [weight], LR), [weight], LR), inputs
    )


def test_a_zero_neuron_pulls_nothing_and_gets_nothing():
    basis, weight = tensors((1, 3, 6), (1, 5, 6))
    with torch.no_grad():
        weight[0, 2] = 0
    stepped = cosine_step(basis, [weight], LR)
    (gradient,) = torch.autograd.grad(stepped.sum(), weight)
    assert torch.isfinite(stepped).all()
    assert torch.isfinite(gradient).all()
    assert (gradient[0, 2] == 0).all()


@pytest.mark.parametrize("length", [1e-12, 1e12])
def test_lengths_of_neurons_do_not_matter(length):
    basis, weight = (t.detach().float() for t in tensors((1, 3, 6), (1, 5, 6)))
    assert torch.allclose(cosine_step(basis, [length * weight], LR), cosine_step(basis, [weight], LR), rtol=1e-4)


def test_the_gradient_ignores_autocast():
    basis, weight = (t.detach().float().requires_grad_() for t in tensors((1, 3, 16), (1, 8, 16)))
    (plain,) = torch.autograd.grad(cosine_step(basis, [weight], LR).sum(), weight)
    stepped = cosine_step(basis, [weight], LR).sum()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        (inside,) = torch.autograd.grad(stepped, weight)
    assert torch.equal(inside, plain)
