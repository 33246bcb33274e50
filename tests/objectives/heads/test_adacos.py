import math

import numpy as np
import pytest
import torch

from hypersphere.objectives import AdaCos
from tests.objectives.contracts import HeadContract


class TestAdaCos(HeadContract):
    scale = math.sqrt(2) * math.log(10)

    def head(self, **options):
        torch.manual_seed(1)
        return AdaCos(5, 11, **options).eval()


@pytest.mark.parametrize("chunk", [None, 4])
def test_the_scale_of_a_step_by_the_formula(chunk):
    head = AdaCos(5, 40, chunk=chunk, dtype=torch.float64).double()
    x, y = torch.randn(9, 5, dtype=torch.float64), torch.randint(0, 40, (9,))
    y[2] = -100
    cos = torch.nn.functional.cosine_similarity(x[:, None], head.weight.detach(), dim=-1).numpy()
    start, kept = math.sqrt(2) * math.log(39), [i for i in range(9) if i != 2]
    total = [np.exp(start * np.delete(cos[i], y[i])).sum() for i in kept]
    theta = np.sort([math.acos(cos[i, y[i]]) for i in kept])[(len(kept) - 1) // 2]
    expected = math.log(np.mean(total)) / math.cos(min(math.pi / 4, theta))
    loss = head(x, y)
    assert head.scale.item() == pytest.approx(expected, rel=1e-6)
    assert torch.allclose(head.eval()(x, y), loss)
    again = AdaCos(5, 40).double()
    again.load_state_dict(head.state_dict())
    assert again.scale == head.scale


def test_nothing_to_learn_from_leaves_the_scale():
    head = AdaCos(5, 11)
    before = head.scale.clone()
    head(torch.randn(3, 5), torch.full((3,), -100))
    assert head.scale == before
    fixed = AdaCos(5, 11, dynamic=False)
    fixed(torch.randn(3, 5), torch.tensor([0, 1, 2]))
    assert fixed.scale == before


def test_two_classes_are_refused():
    with pytest.raises(ValueError, match="num_classes ≥ 3"):
        AdaCos(5, 2)
