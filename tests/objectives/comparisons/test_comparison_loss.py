import pytest
import torch

from hypersphere.objectives import MarginSoftmax
from hypersphere.objectives.comparisons import Binary, Comparison, CrossEntropy


def test_a_comparison_without_its_methods_cannot_be_made():
    with pytest.raises(TypeError, match="abstract"):
        Comparison()


@pytest.mark.parametrize("chunk", [None, 4])
def test_a_comparison_of_ones_own_fits_without_touching_the_head(chunk):
    class Squared(Binary):
        """t² + Σ z², which no head of the library has."""

        def add(self, state, z, counts=None):
            return (state[0] + z.masked_fill(z == -torch.inf, 0).square().sum(-1),)

        def slope(self, z, summary, gradients, counts=None):
            return 2 * z * gradients[0].unsqueeze(-1)

        def loss(self, target, summary, num_classes):
            return target.square() + summary[0]

    head = MarginSoftmax(5, 11, comparison=Squared(), scale=2.0, chunk=chunk, dtype=torch.float64)
    x, y = torch.randn(6, 5, dtype=torch.float64, requires_grad=True), torch.randint(0, 11, (6,))
    expected = head.logits(x).square().sum(-1).mean()
    loss = head(x, y)
    assert torch.allclose(loss, expected)
    mine, theirs = (torch.autograd.grad(value, (x, head.weight)) for value in (loss, expected))
    for a, b in zip(mine, theirs, strict=True):
        assert torch.allclose(a, b, atol=1e-12)


def test_a_faster_form_is_not_inherited_by_who_changes_what_it_is_a_form_of():
    class Halved(CrossEntropy):
        def slope(self, z, summary, gradients, counts=None):
            return super().slope(z, summary, gradients, counts) / 2

    z, ones = torch.randn(3, 4), (torch.ones(3),)
    summary, slope = Halved().of_all_with_slope(z.clone())
    assert torch.allclose(slope(ones), CrossEntropy().slope(z, summary, ones) / 2)
    assert Halved.loss_with_slopes is CrossEntropy.loss_with_slopes
