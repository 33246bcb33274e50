import copy

import pytest
import torch

from hypersphere.objectives import AMSoftmax, ArcFace, Hinge, Sample, SphereFace2, Stages
from hypersphere.objectives.sampling import hash_classes
from hypersphere.objectives.sampling import sample as module


def loss_and_gradients(head, x, y):
    x = x.clone().requires_grad_()
    loss = head(x, y)
    loss.backward()
    gradient = head.weight.grad
    return loss.detach(), x.grad, gradient.to_dense() if gradient.layout == torch.sparse_coo else gradient


def batch(classes=40, n=6):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(n, 8, generator=generator, dtype=torch.float64), torch.randint(
        0, classes, (n,), generator=generator
    )


def test_draws_follow_seed_step_and_class_alone(monkeypatch):
    sample, positives = Sample(0.3, seed=5), torch.tensor([], dtype=torch.int64)
    whole = sample.draw_classes(0, 1000, positives)
    assert torch.equal(
        torch.cat([sample.draw_classes(0, 300, positives), sample.draw_classes(300, 700, positives)]), whole
    )
    monkeypatch.setattr(module, "CLASSES_PER_BLOCK", 64)
    assert torch.equal(sample.draw_classes(0, 1000, positives), whole)
    assert not torch.equal(Sample(0.3, seed=6).draw_classes(0, 1000, positives), whole)
    sample.step()
    assert not torch.equal(sample.draw_classes(0, 1000, positives), whole)
    again = Sample(0.3, seed=5)
    again.load_state_dict(sample.state_dict())
    assert torch.equal(again.draw_classes(0, 1000, positives), sample.draw_classes(0, 1000, positives))


def splitmix64(seed, step, c):
    """An independent splitmix64, on Python's integers."""

    def mix(x):
        x = (x + 0x9E3779B97F4A7C15) % 2**64
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
        return x ^ (x >> 31)

    return mix((mix((mix(seed) + step) % 2**64) + c) % 2**64) >> 11


def test_the_bits_are_splitmix64_and_even():
    classes = torch.arange(200)
    assert hash_classes(3, 11, classes).tolist() == [splitmix64(3, 11, c) for c in range(200)]
    bits = torch.stack([hash_classes(0, step, torch.arange(5000)) for step in range(20)]).double() / 2**53
    counts = torch.histc(bits, 20, 0, 1)
    assert ((counts - 5000).abs() < 5 * 5000**0.5).all()
    left, right = bits[:-1].flatten(), bits[1:].flatten()
    assert torch.corrcoef(torch.stack([left, right]))[0, 1].abs() < 0.015


def test_the_usual_loss_is_that_of_a_head_with_the_drawn_classes():
    head = ArcFace(8, 40, sample=0.2, bias=True, label_smoothing=0.1, dtype=torch.float64)
    torch.nn.init.normal_(head.bias)
    x, y = batch()
    drawn = head.sample.draw_classes(0, 40, y).nonzero().squeeze(-1)
    assert len(y.unique()) <= len(drawn) < 25
    small = ArcFace(8, len(drawn), bias=True, label_smoothing=0.1, dtype=torch.float64)
    small.load_state_dict({"weight": head.weight[drawn], "bias": head.bias[drawn]})
    loss, dx, dw = loss_and_gradients(head, x, y)
    expected = loss_and_gradients(small, x, torch.searchsorted(drawn, y))
    assert head.weight.grad.layout == torch.sparse_coo
    assert torch.allclose(loss, expected[0], rtol=1e-12)
    assert torch.allclose(dx, expected[1], rtol=1e-12)
    assert torch.allclose(dw[drawn], expected[2], rtol=1e-12)
    assert dw.abs().sum(-1).nonzero().squeeze(-1).tolist() == drawn.tolist()


@pytest.mark.parametrize("kind", [AMSoftmax, SphereFace2])
def test_an_unbiased_sum_is_right_in_the_mean(kind):
    """exp(loss) − 1 of the softmax is a sum over the other classes; SphereFace2's loss adds the target's term."""
    head = kind(8, 40, scale=2.0, reduction="none", dtype=torch.float64)
    x, y = batch()
    exact = head(x, y)
    drawing = copy.deepcopy(head)
    drawing.sample = Sample(0.25, unbiased=True)
    values = []
    for _ in range(1500):
        values.append(drawing(x, y).detach())
        drawing.step()
    found = torch.stack(values)
    if kind is AMSoftmax:
        found, exact = found.expm1(), exact.expm1()
    error = found.mean(0) - exact
    assert (error.abs() < 4.5 * found.std(0) / 1500**0.5).all()
    usual = copy.deepcopy(head)
    usual.sample = Sample(0.25)
    assert usual(x, y).mean() < exact.mean() * 0.9


def test_unbiased_gradients_against_finite_differences():
    head = SphereFace2(8, 12, sample=Sample(0.5, unbiased=True), chunk=3, dtype=torch.float64)
    x, y = batch(12, 3)
    _, dx, dw = loss_and_gradients(head, x, y)
    head.sample.unbiased = True
    step = 1e-6
    for where, tensor, gradient in ((1, x, dx), (5, head.weight.data, dw)):
        for column in range(3):
            values = []
            for sign in (1, -1):
                row = where % len(tensor)
                tensor[row, column] += sign * step
                values.append(head(x, y).item())
                tensor[row, column] -= sign * step
            assert gradient[row, column] == pytest.approx((values[0] - values[1]) / (2 * step), rel=1e-5, abs=1e-8)


def test_few_first_all_at_the_end_and_all_in_evaluation():
    head = ArcFace(8, 40, sample=Stages([0.1, 1.0], at=[2]))
    x, y = batch()
    x = x.float()
    whole = ArcFace(8, 40)
    whole.load_state_dict(head.state_dict(), strict=False)
    assert torch.equal(head.eval()(x, y), whole(x, y))
    head.train()
    assert head(x, y) < whole(x, y)
    for _ in range(2):
        head.step()
    assert torch.equal(head(x, y), whole(x, y))
    resumed = ArcFace(8, 40, sample=Stages([0.1, 1.0], at=[2]))
    resumed.load_state_dict(head.state_dict())
    assert resumed.sample.rate == 1


@pytest.mark.parametrize("rate", [0, 1.5, -0.1, float("nan"), True, Stages([0.0, 1.0], at=[1])])
def test_refuses_what_is_no_rate(rate):
    with pytest.raises(ValueError, match=r"rate must be a number in \(0, 1\]"):
        Sample(rate)


def test_a_maximum_has_no_unbiased_sample():
    with pytest.raises(ValueError, match="MultiClassHinge is not"):
        Hinge(8, 40, sample=Sample(0.1, unbiased=True))
    with pytest.raises(ValueError, match="seed must be"):
        Sample(0.1, seed=-1)
