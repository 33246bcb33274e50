import pytest
import torch
from torch import nn

from hypersphere import models
from hypersphere.training import MovingAverage, average_states


def test_the_moving_average_by_hand():
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.BatchNorm1d(2))
    average = MovingAverage(model, 0.5)
    expected = model[0].weight.detach().clone()
    for step in range(1, 6):
        with torch.no_grad():
            model[0].weight.add_(1.0)
        model[1].num_batches_tracked.add_(1)
        average.update(model)
        decay = min(0.5, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * model[0].weight.detach()
    torch.testing.assert_close(average.shadow["0.weight"], expected)
    assert average.shadow["1.num_batches_tracked"] == 5  # integers are copied


def test_applied_for_a_while_only():
    model = nn.Linear(2, 2)
    average = MovingAverage(model, 0.9)
    before = model.weight.detach().clone()
    average.shadow["weight"].zero_()
    with average.use_averaged_weights(model):
        assert model.weight.abs().sum() == 0
    assert torch.equal(model.weight, before)
    other = MovingAverage(nn.Linear(2, 2), 0.9)
    other.load_state_dict(average.state_dict())
    assert torch.equal(other.shadow["weight"], average.shadow["weight"])


def test_the_mean_of_states():
    states = [{"w": torch.tensor([float(i)]), "n": torch.tensor(i)} for i in range(4)]
    mean = average_states(states)
    assert (mean["w"].item(), mean["n"].item()) == (1.5, 3)
    with pytest.raises(ValueError, match="states must contain the same tensors"):
        average_states([{"w": torch.zeros(1)}, {"v": torch.zeros(1)}])
    with pytest.raises(ValueError, match="states must contain at least one state_dict"):
        average_states([])


def test_an_average_of_weights_on_the_sphere_is_put_back_on_it():
    net = models.ngpt(3, depth=1, dim=8, heads=2, patch=4, input_size=8)
    average = MovingAverage(net, 0.5)
    with torch.no_grad():
        for p in net.parameters():
            p.normal_()
    net.renormalize_()
    average.update(net)
    assert (average.shadow["positions"].norm(dim=1) - 1).abs().max() > 0.01  # the mean of two unit vectors is shorter
    own = net.positions.detach().clone()
    with average.use_averaged_weights(net):
        assert torch.allclose(net.positions.norm(dim=1), torch.ones(4))
        assert torch.allclose(net.blocks[0].mlp.up.linear.weight.norm(dim=1), torch.ones(21), atol=1e-6)
    assert torch.equal(net.positions, own)
    average.load_into(net)
    assert torch.allclose(net.positions, nn.functional.normalize(average.shadow["positions"]))
