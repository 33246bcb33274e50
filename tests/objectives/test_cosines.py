import pytest
import torch

from hypersphere.geometry import normalize
from hypersphere.objectives.cosines import CosineParts
from hypersphere.objectives.scores import MIN_NORM


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("sub_centers", [1, 3])
def test_a_chunk_and_its_gradient_against_autograd(sub_centers, normalized, keep):
    a = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(6 * sub_centers, 5, dtype=torch.float64)
    weight[1] *= 0.1 * MIN_NORM
    weight.requires_grad_()
    bias = torch.randn(6, dtype=torch.float64, requires_grad=True)
    d = torch.randn(4, 6, dtype=torch.float64)
    rows = normalize(weight, min_norm=MIN_NORM) if normalized else weight
    expected = (a @ rows.T).unflatten(-1, (6, sub_centers)).amax(-1) + bias
    gradients = torch.autograd.grad(expected, (weight, bias, a), d)
    parts = CosineParts(sub_centers, normalized, None, keep)
    w, b, x = weight.detach(), bias.detach(), a.detach()
    parts.open(w, w.dtype)
    pieces = [slice(0, 4), slice(4, 6)]
    for part in pieces:
        z = parts.logits(part, w, b, x)
        assert torch.allclose(z, expected[:, part], atol=1e-12)
        parts.keep(part, z)
    parts.open_backward(w, b, (True, True, True), x)
    for part in pieces:
        parts.pull(part, parts.logits_again(part, w, b, x), d[:, part].clone(), w, b, x)
    for mine, theirs in zip(parts.close(), gradients, strict=True):
        assert torch.allclose(mine, theirs, rtol=1e-12, atol=1e-12)


def test_only_what_is_wanted_is_made():
    parts = CosineParts(1, True, None, False)
    w, x = torch.randn(3, 4), torch.randn(2, 4)
    parts.open(w, w.dtype)
    parts.logits(slice(0, 3), w, None, x)
    parts.open_backward(w, None, (False, False, False), x)
    parts.pull(slice(0, 3), parts.logits_again(slice(0, 3), w, None, x), torch.ones(2, 3), w, None, x)
    assert parts.close() == (None, None, None)


@pytest.mark.parametrize("length", [1e-30, 1e30])
def test_rows_of_any_length(length):
    w = torch.randn(3, 4)
    x = torch.randn(2, 4)
    parts = CosineParts(1, True, None, False)
    w[1] *= length
    w[2] = 0
    parts.open(w, w.dtype)
    z = parts.logits(slice(0, 3), w, None, x)
    assert torch.allclose(z, x @ normalize(w).T, atol=1e-6)
    assert (z[:, 2] == 0).all()
    weight = w.clone().requires_grad_()
    (expected,) = torch.autograd.grad((x @ normalize(weight, min_norm=MIN_NORM).T).sum(), weight)
    parts.open_backward(w, None, (True, False, True), x)
    parts.pull(slice(0, 3), z, torch.ones(2, 3), w, None, x)
    gradient, _, d_x = parts.close()
    assert torch.allclose(gradient, expected, rtol=1e-4, atol=1e-4 * expected[1].abs().max().item())
    assert torch.allclose(d_x, normalize(w).sum(0).expand(2, 4), atol=1e-5)


def test_the_norms_of_float32_rows_are_taken_in_the_features_precision():
    w, x = torch.randn(3, 4), torch.randn(2, 4, dtype=torch.float64)
    parts = CosineParts(1, True, None, False)
    parts.open(w, x.dtype)
    assert torch.allclose(parts.logits(slice(0, 3), w, None, x), x @ normalize(w.double()).T, atol=1e-14)
