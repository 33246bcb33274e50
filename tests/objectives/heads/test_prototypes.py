import pytest
import torch

from hypersphere.energy import minimize_energy
from hypersphere.objectives import PrototypeSoftmax, simplex_prototypes
from tests.objectives.contracts import HeadContract


@pytest.mark.parametrize(("classes", "dim"), [(2, 1), (4, 3), (4, 10), (50, 64)])
def test_a_simplex_has_equal_angles_and_its_mean_at_the_origin(classes, dim):
    w = simplex_prototypes(classes, dim).double()
    expected = torch.full((classes, classes), -1 / (classes - 1), dtype=torch.float64).fill_diagonal_(1)
    assert torch.allclose(w @ w.T, expected, atol=1e-6)
    assert w.sum(0).abs().max() <= 1e-5


def test_it_is_the_frame_of_the_formula():
    """√(C/(C−1))·P(I − 11ᵀ/C) has this Gram matrix for every rotation P."""
    c, p = 6, torch.linalg.qr(torch.randn(9, 6, dtype=torch.float64)).Q
    frame = (c / (c - 1)) ** 0.5 * p @ (torch.eye(c, dtype=torch.float64) - 1 / c)
    w = simplex_prototypes(c, 9, generator=torch.Generator().manual_seed(1)).double()
    assert torch.allclose(w @ w.T, frame.T @ frame, atol=1e-6)


def test_the_weight_stays_and_the_features_learn():
    head = PrototypeSoftmax(8, 5)
    x = torch.randn(6, 8, requires_grad=True)
    for chunk in (None, 2):
        head.chunk = chunk
        head(x, torch.tensor([0, 1, 2, 3, 4, 0])).backward()
        assert head.weight.grad is None
    assert (x.grad != 0).any()


def test_any_points_will_do():
    points, _ = minimize_energy(12, 3)
    head = PrototypeSoftmax(3, 12, prototypes=points)
    assert torch.allclose(head.weight, points.to(head.weight.dtype))


def test_points_of_least_energy_and_groups_are_settings():
    from hypersphere.config import assign, call
    from hypersphere.energy import place_prototypes

    head = assign(call(PrototypeSoftmax), ["s=1"]).build(in_features=3, num_classes=12)
    assert torch.allclose(head.weight, place_prototypes(12, 3))
    grouped = assign(call(PrototypeSoftmax), ["groups=0,0,1,1", "spread=0.3"]).build(in_features=3, num_classes=4)
    assert torch.allclose(grouped.weight, place_prototypes(4, 3, groups=[0, 0, 1, 1], spread=0.3))
    with pytest.raises(ValueError, match="cannot be combined with s or groups"):
        PrototypeSoftmax(3, 12, prototypes=torch.eye(12, 3), s=1.0)


@pytest.mark.parametrize("prototypes", [torch.zeros(4, 8), torch.full((5, 8), torch.nan)])
def test_refuses(prototypes):
    with pytest.raises(ValueError, match="prototypes must be finite and of shape"):
        PrototypeSoftmax(8, 5, prototypes=prototypes)
    with pytest.raises(ValueError, match="dim ≥ num_classes"):
        simplex_prototypes(9, 7)
    with pytest.raises(ValueError, match="one center per class"):
        PrototypeSoftmax(8, 5, sub_centers=2)


class TestFrozen(HeadContract):
    """A frozen head equals a learned head of the same weights, except for the weight's gradient."""

    scale = 30.0
    has_bias = False

    def head(self, **options):
        torch.manual_seed(1)
        rows = torch.randn(11 * options.get("sub_centers", 1), 5)
        head = PrototypeSoftmax(5, 11, prototypes=rows, **{k: v for k, v in options.items() if k != "bias"})
        head.weight.requires_grad_()
        return head
