import pytest
import torch

from hypersphere.models.patches import PatchResponses


@pytest.mark.parametrize(
    ("size", "cells"), [((14, 17), (4, 4)), ((9, 30), (4, 1)), ((30, 9), (1, 4)), ((6, 8), (3, 4))]
)
def test_responses_by_brute_force(size, cells):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 3, *size, generator=generator, dtype=torch.float64)
    net = PatchResponses(3, size, filters=4, side=5).double()
    net.bias.copy_(torch.randn(4, generator=generator))
    side = net.side
    places = [range(length - side + 1) for length in size]
    sums = torch.zeros(2, 8, *cells, dtype=torch.float64)
    counts = torch.zeros(cells, dtype=torch.float64)
    for i in places[0]:
        for j in places[1]:
            patch = x[:, :, i : i + side, j : j + side].flatten(1)
            patch = (patch - patch.mean(1, keepdim=True)) / (patch.var(1, keepdim=True) + net.contrast).sqrt()
            response = patch @ net.weight.flatten(1).T + net.bias
            cell = i * cells[0] // len(places[0]), j * cells[1] // len(places[1])
            both = torch.cat([response - 0.5, -response - 0.5], 1).clamp(min=0)
            sums[:, :, cell[0], cell[1]] += both
            counts[cell] += 1
    wanted = (sums / counts).flatten(1).clamp(min=1e-8).sqrt()
    torch.testing.assert_close(net(x), wanted)
    assert net.feature_dim == wanted.shape[1]


def test_the_gradient_is_finite_where_nothing_responds():
    x = torch.zeros(1, 1, 12, 12, requires_grad=True)
    PatchResponses(1, (12, 12), filters=3)(x).sum().backward()
    assert x.grad.isfinite().all()


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match="filters must be an integer"):
        PatchResponses(1, (12, 12), filters=0)
    with pytest.raises(ValueError, match="at least 4×4"):
        PatchResponses(1, (3, 12), filters=4)
