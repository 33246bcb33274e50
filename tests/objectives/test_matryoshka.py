import pytest
import torch

from hypersphere.objectives import CosFace, Matryoshka


def test_it_is_the_mean_of_losses_of_prefixes():
    loss = Matryoshka(8, 5, dims=(2, 4), m=0.1, scale=7.0).double()
    x, y = torch.randn(6, 8, dtype=torch.float64), torch.tensor([0, 1, 2, 3, 4, 0])
    expected = 0.0
    for dim, head in zip((2, 4), loss.heads, strict=True):
        cos = torch.nn.functional.normalize(x[:, :dim]) @ torch.nn.functional.normalize(head.weight).T
        logits = 7.0 * (cos - 0.1 * torch.nn.functional.one_hot(y, 5))
        expected += torch.nn.functional.cross_entropy(logits, y) / 2
    assert torch.allclose(loss(x, y), expected)


def test_gradcheck():
    loss = Matryoshka(4, 3, dims=(2,)).double()
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: loss(x, torch.tensor([0, 1, 2])), x)


def test_prefixes_learn_what_the_whole_feature_would_leave_to_other_dimensions():
    """Classes differ in the last dimensions of the input; with the loss, the first features tell them apart."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(4).repeat(50)
    means = torch.randn(4, 16, generator=generator)
    x = means[labels] + 0.5 * torch.randn(200, 16, generator=generator)
    accuracy = []
    for weight in (0.0, 1.0):
        torch.manual_seed(0)
        network, head, loss = torch.nn.Linear(16, 16), CosFace(16, 4), Matryoshka(16, 4, dims=(2,))
        optimizer = torch.optim.Adam([*network.parameters(), *head.parameters(), *loss.parameters()], lr=0.01)
        for _ in range(150):
            optimizer.zero_grad()
            (head(network(x), labels) + weight * loss(network(x), labels)).backward()
            optimizer.step()
        short = torch.nn.functional.normalize(network(x)[:, :2].detach())
        centers = torch.stack([short[labels == i].mean(0) for i in range(4)])
        accuracy.append(((short @ centers.T).argmax(1) == labels).double().mean().item())
    assert accuracy[1] > max(accuracy[0], 0.95)


def test_prefixes_must_be_shorter_than_the_features():
    for dims in ((), (0,), (8,)):
        with pytest.raises(ValueError, match="dims must be prefixes shorter than the 8 features"):
            Matryoshka(8, 3, dims=dims)


def test_takes_any_head_and_moves_its_schedules():
    from hypersphere.objectives import Annealing, ProxyAnchor, QMargin

    x, y = torch.randn(6, 8), torch.tensor([0, 1, 2, 3, 4, 0])
    for make in (QMargin, ProxyAnchor):
        loss = Matryoshka(8, 5, dims=(2, 4), head=make)
        expected = torch.stack([head(x[:, :d], y) for d, head in zip((2, 4), loss.heads, strict=True)]).mean()
        assert torch.equal(loss(x, y), expected)
        assert all(isinstance(head, make) for head in loss.heads)
    annealed = Matryoshka(8, 5, dims=(2,), head=lambda d, c: CosFace(d, c, annealing=Annealing()))
    annealed.step()
    assert annealed.heads[0].annealing.steps == 1
