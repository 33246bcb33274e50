import math

import numpy as np
import pytest
import torch

from hypersphere.objectives import CurricularFace
from tests.objectives.contracts import HeadContract


def arc(theta):
    return np.cos(theta + 0.5) if theta + 0.5 <= math.pi else -np.cos(theta + 0.5) - 2


class TestCurricularFace(HeadContract):
    scale = 64.0

    def head(self, **options):
        torch.manual_seed(1)
        head = CurricularFace(5, 11, **options).eval()
        head.margin.t.fill_(0.3)
        return head

    def psi(self, theta):
        return arc(theta)

    def other_of(self, theta, thetas, label, length):
        cos = np.cos(theta)
        return cos * (0.3 + cos) if cos > arc(thetas[label]) else cos


def test_t_follows_the_cosines_of_the_targets_and_is_saved():
    head = CurricularFace(5, 11)
    x, y = torch.randn(8, 5), torch.randint(0, 11, (8,))
    cos = torch.nn.functional.cosine_similarity(x, head.weight[y]).detach()
    head(x, y)
    assert head.margin.t.item() == pytest.approx(0.01 * cos.mean().item(), rel=1e-4)
    again = CurricularFace(5, 11)
    again.load_state_dict(head.state_dict())
    assert again.margin.t == head.margin.t


@pytest.mark.parametrize("chunk", [None, 4])
def test_t_of_this_step_is_used_in_this_step(chunk):
    head = CurricularFace(5, 11, momentum=1.0, chunk=chunk, dtype=torch.float64).double()
    x, y = torch.randn(8, 5, dtype=torch.float64), torch.randint(0, 11, (8,))
    loss = head(x, y)
    assert torch.allclose(head.eval()(x, y), loss, rtol=1e-12)


@pytest.mark.parametrize("momentum", [0, 1.5, math.nan])
def test_refuses(momentum):
    with pytest.raises(ValueError, match="momentum must be"):
        CurricularFace(5, 11, momentum=momentum)
