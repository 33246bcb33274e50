import pytest
import torch

from hypersphere.geometry import normalize
from hypersphere.objectives.engine.chunked import Block, CosineLogits, Gradients, Inputs
from hypersphere.objectives.engine.scores import MIN_NORM, find_nearest_centers, scatter_to_centers, sum_by_center


@pytest.mark.parametrize("k", [2, 3, 5])
def test_the_nearest_center_is_the_first_of_equals(k):
    each = torch.randint(0, 4, (6, 7 * k)).double()
    best, nearest = find_nearest_centers(each, k)
    centers = each.unflatten(1, (-1, k))
    assert torch.equal(best, centers.amax(-1))
    assert torch.equal(nearest.long(), (centers == centers.amax(-1, keepdim=True)).int().argmax(-1))
    d = torch.randn(6, 7, dtype=torch.float64)
    expected = torch.zeros_like(centers).scatter(2, nearest.long().unsqueeze(-1), d.unsqueeze(-1))
    for dtype in (torch.float64, torch.int8):
        assert torch.equal(scatter_to_centers(d, nearest.to(dtype), k), expected.flatten(1))
    assert torch.allclose(sum_by_center(expected.flatten(1), best, k), (expected * best.unsqueeze(-1)).sum(0).flatten())


def pulled(logits, inputs, parts, d, needs, keep):
    """The gradients of all inputs for ∂L/∂z = d, block by block."""
    gradients = Gradients.allocate(inputs, needs)
    for part in parts:
        block = logits.compute_block(part, inputs)
        block = block if keep else logits.compute_block(part, inputs, Block(block.inverse).inverse)
        logits.propagate(part, block, inputs, lambda z, part=part: d[:, part].clone(), gradients)
    return gradients.weight, gradients.bias, gradients.batch[0]


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("sub_centers", [1, 3])
def test_a_block_and_its_gradient_against_autograd(sub_centers, normalized, keep):
    a = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(6 * sub_centers, 5, dtype=torch.float64)
    weight[1] *= 0.1 * MIN_NORM
    weight.requires_grad_()
    bias = torch.randn(6, dtype=torch.float64, requires_grad=True)
    d = torch.randn(4, 6, dtype=torch.float64)
    rows = normalize(weight, min_norm=MIN_NORM) if normalized else weight
    expected = (a @ rows.T).unflatten(-1, (6, sub_centers)).amax(-1) + bias
    gradients = torch.autograd.grad(expected, (weight, bias, a), d)
    logits = CosineLogits(sub_centers, normalized, None)
    inputs = Inputs(weight.detach(), bias.detach(), (a.detach(),))
    parts = [slice(0, 4), slice(4, 6)]
    for part in parts:
        z = logits.compute_logits(part, logits.compute_block(part, inputs), inputs)
        assert torch.allclose(z, expected[:, part], atol=1e-12)
    for mine, theirs in zip(pulled(logits, inputs, parts, d, [True] * 3, keep), gradients, strict=True):
        assert torch.allclose(mine, theirs, rtol=1e-12, atol=1e-12)


def test_only_what_is_wanted_is_made():
    inputs = Inputs(torch.randn(3, 4), None, (torch.randn(2, 4),))
    made = pulled(CosineLogits(1, True, None), inputs, [slice(0, 3)], torch.ones(2, 3), [False] * 3, True)
    assert made == (None, None, None)


@pytest.mark.parametrize("length", [1e-30, 1e30])
def test_rows_of_any_length(length):
    w, x = torch.randn(3, 4), torch.randn(2, 4)
    logits = CosineLogits(1, True, None)
    w[1] *= length
    w[2] = 0
    inputs = Inputs(w, None, (x,))
    z = logits.compute_block(slice(0, 3), inputs).products
    assert torch.allclose(z, x @ normalize(w).T, atol=1e-6)
    assert (z[:, 2] == 0).all()
    weight = w.clone().requires_grad_()
    (expected,) = torch.autograd.grad((x @ normalize(weight, min_norm=MIN_NORM).T).sum(), weight)
    gradient, _, d_x = pulled(logits, inputs, [slice(0, 3)], torch.ones(2, 3), [True, False, True], True)
    assert torch.allclose(gradient, expected, rtol=1e-4, atol=1e-4 * expected[1].abs().max().item())
    assert torch.allclose(d_x, normalize(w).sum(0).expand(2, 4), atol=1e-5)


def test_the_norms_of_float32_rows_are_taken_in_the_features_precision():
    w, x = torch.randn(3, 4), torch.randn(2, 4, dtype=torch.float64)
    block = CosineLogits(1, True, None).compute_block(slice(0, 3), Inputs(w, None, (x,)))
    assert torch.allclose(block.products, x @ normalize(w.double()).T, atol=1e-14)
