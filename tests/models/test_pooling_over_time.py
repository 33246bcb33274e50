import numpy as np
import torch
from torch import nn

from hypersphere.models import AttentivePooling, StatisticsPooling, pool_statistics
from hypersphere.models.pooling_over_time import MIN_VARIANCE


def test_statistics_are_mean_and_deviation():
    x = torch.rand(2, 3, 20)
    expected = np.concatenate([x.numpy().mean(2), x.numpy().std(2)], 1)
    np.testing.assert_allclose(StatisticsPooling()(x).numpy(), expected, atol=1e-5)
    weights = torch.rand(2, 3, 20)
    weights /= weights.sum(2, keepdim=True)
    w, y = weights.double().numpy(), x.double().numpy()
    mean = (w * y).sum(2)
    deviation = np.sqrt((w * (y - mean[..., None]) ** 2).sum(2))
    np.testing.assert_allclose(pool_statistics(x, weights).numpy(), np.concatenate([mean, deviation], 1), atol=1e-5)


def test_a_constant_has_the_least_deviation_and_a_finite_gradient():
    x = torch.full((1, 2, 5), 3.0, requires_grad=True)
    found = pool_statistics(x)
    found.sum().backward()
    np.testing.assert_allclose(found.detach().numpy()[0], [3, 3, MIN_VARIANCE**0.5, MIN_VARIANCE**0.5], rtol=1e-6)
    assert x.grad.isfinite().all()


def test_gradient_of_the_statistics():
    x = torch.rand(2, 3, 6, dtype=torch.double, requires_grad=True)
    weights = torch.rand(2, 3, 6, dtype=torch.double).softmax(2).requires_grad_()
    assert torch.autograd.gradcheck(pool_statistics, (x, weights))


def test_equal_attention_is_plain_statistics():
    pool = AttentivePooling(3, 4).eval()
    nn.init.zeros_(pool.attention[-1].weight)
    nn.init.zeros_(pool.attention[-1].bias)
    x = torch.rand(2, 3, 20)
    torch.testing.assert_close(pool(x), pool_statistics(x), atol=1e-5, rtol=1e-4)


def test_attention_prefers_what_scores_high():
    pool = AttentivePooling(1, 1).eval()
    with torch.no_grad():
        for layer in (pool.attention[0], pool.attention[-1]):
            layer.weight.zero_()
            layer.bias.zero_()
        pool.attention[0].weight[0, 0] = 1.0  # attention depends only on the frame
        pool.attention[-1].weight[:] = 50.0
    x = torch.tensor([[[0.0, 0.0, 1.0, 0.0]]])
    assert pool(x)[0, 0] > 0.99
