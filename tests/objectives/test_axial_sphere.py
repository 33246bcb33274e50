import copy
import math

import pytest
import torch

from hypersphere.neurons import Classifier
from hypersphere.objectives import AxialSphere


def brute_force(head, x, y):
    """Compute the loss sample by sample in float64."""
    w, total, count = head.weight.detach().double(), 0.0, 0
    axes = [c for c in range(head.num_classes) if c != head.negative_label]

    def loss(v, label):
        log_z = math.log(sum(math.exp(v[c]) for c in axes))
        if label is None:
            entropy = sum(log_z - v[c] for c in axes) / len(axes)
            return entropy + head.distance_weight * sum(v[c] ** 2 for c in axes) / head.radius**2
        far = sum((v[c] - head.radius * (c == label)) ** 2 for c in axes)
        return log_z - v[label] + head.distance_weight * far / head.radius**2

    vs = [[float(row.double() @ w[c]) for c in range(head.num_classes)] for row in x]
    for v, label in zip(vs, y.tolist(), strict=True):
        if label != head.ignore_index:
            total, count = total + loss(v, None if label == head.negative_label else label), count + 1
    if head.mix:
        for i in range(len(y)):
            a, b = y[i].item(), y[i - 1].item()
            if a != b and not {a, b} & {head.negative_label, head.ignore_index}:
                total, count = (
                    total + loss([(p + q) / 2 for p, q in zip(vs[i], vs[i - 1], strict=True)], None),
                    count + 1,
                )
    return total / max(count, 1)


LABELS = torch.tensor([0, 3, 1, 1, -1, 2, -100, 0, -1, 3])


@pytest.mark.parametrize("mix", [False, True])
@pytest.mark.parametrize("negative", [-1, 2])
def test_is_the_formula(negative, mix):
    torch.manual_seed(0)
    head = AxialSphere(5, 4, radius=3.0, weight=0.7, negative_label=negative, mix=mix)
    x, y = torch.randn(10, 5, dtype=torch.float64), LABELS.clone()
    y[y == -1] = negative
    assert head(x, y).item() == pytest.approx(brute_force(head, x, y), rel=1e-6)


def test_derivatives_and_nothing_to_learn_from():
    head = AxialSphere(5, 4, radius=3.0, mix=True).double()
    x = torch.randn(10, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: head(x, LABELS), x)
    nothing = head(x, torch.full((10,), -100))
    nothing.backward()
    assert nothing == 0
    assert (x.grad == 0).all()


def test_half_precision_copies_and_state():
    head = AxialSphere(5, 4)
    x = torch.randn(10, 5, dtype=torch.bfloat16)
    assert head(x, LABELS).dtype == torch.float32
    assert torch.equal(copy.deepcopy(head)(x, LABELS), head(x, LABELS))
    other = AxialSphere(5, 4)
    other.load_state_dict(head.state_dict())
    assert torch.equal(other(x, LABELS), head(x, LABELS))
    assert isinstance(head, Classifier)


def test_distances_and_scores():
    head = AxialSphere(3, 3, radius=4.0, negative_label=1)
    head.weight.data = torch.eye(3)
    x = torch.tensor([[4.0, 9.0, 0.0], [0.0, 9.0, 0.0], [1.0, 0.0, 3.0]])
    found = head.distances(x)
    assert torch.allclose(found[:, 0], torch.tensor([0.0, 4.0, math.sqrt(18)]))
    assert torch.isinf(found[:, 1]).all()
    assert head.predict(x).tolist() == [0, 0, 2]
    assert torch.allclose(head.score(x), torch.tensor([0.0, -4.0, -math.sqrt(2)]))


def test_identities_that_are_negatives_in_training_are_rejected():
    """Two identities are accepted less often if they are negatives in training."""
    generator = torch.Generator().manual_seed(0)
    means = 2 * torch.randn(8, 12, generator=generator)
    x = means.repeat_interleave(40, 0) + torch.randn(320, 12, generator=generator)
    who = torch.arange(8).repeat_interleave(40)
    rates = []
    for trained in (who < 4, who < 6):
        torch.manual_seed(0)
        head = AxialSphere(12, 4, radius=6.0)
        optimizer = torch.optim.Adam(head.parameters(), lr=0.05)
        y = torch.where(who < 4, who, -1)
        for _ in range(150):
            optimizer.zero_grad()
            head(x[trained], y[trained]).backward()
            optimizer.step()
        accepted = head.score(x).detach() > -head.radius / 2
        assert (head.predict(x[who < 4]) == who[who < 4]).double().mean() > 0.95
        rates.append(accepted[(who == 4) | (who == 5)].double().mean().item())
    assert rates[1] < rates[0] or rates[0] == 0
    assert rates[1] < 0.1


@pytest.mark.parametrize(
    "options", [{"radius": 0.0}, {"weight": -1.0}, {"negative_label": 4}, {"negative_label": -100}]
)
def test_refuses(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        AxialSphere(5, 4, **options)


def test_refuses_sizes_and_labels():
    with pytest.raises(ValueError, match="num_classes ≥ 2"):
        AxialSphere(5, 1)
    with pytest.raises(ValueError, match="labels must be in"):
        AxialSphere(5, 4)(torch.randn(1, 5), torch.tensor([4]))
