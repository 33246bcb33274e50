import pytest
import torch

from hypersphere.objectives import CenterLoss


def test_the_formula():
    loss = CenterLoss(3, 4, reduction="sum").double()
    torch.nn.init.normal_(loss.centers)
    x, y = torch.randn(6, 3, dtype=torch.float64), torch.tensor([0, 1, 2, 3, 3, 0])
    expected = sum(0.5 * ((x[i] - loss.centers[y[i]]) ** 2).sum() for i in range(6))
    assert torch.allclose(loss(x, y), expected)
    mean = CenterLoss(3, 4).double()
    mean.load_state_dict(loss.state_dict())
    assert torch.allclose(mean(x, y), expected / 6)


def test_descent_moves_the_centers_to_the_class_means():
    loss = CenterLoss(2, 2)
    x, y = torch.tensor([[1.0, 0.0], [3.0, 0.0], [0.0, 5.0]]), torch.tensor([0, 0, 1])
    optimizer = torch.optim.SGD(loss.parameters(), lr=0.5)
    for _ in range(200):
        optimizer.zero_grad()
        loss(x, y).backward()
        optimizer.step()
    assert torch.allclose(loss.centers, torch.tensor([[2.0, 0.0], [0.0, 5.0]]), atol=1e-4)


def test_gradcheck():
    loss = CenterLoss(3, 4).double()
    y = torch.tensor([0, 1, 3])
    x = torch.randn(3, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: loss(x, y), x)


def test_ignored_and_half():
    loss = CenterLoss(2, 3, ignore_index=9)
    x = torch.tensor([[3.0, 4.0], [1.0, 1.0]], dtype=torch.float16)
    value = loss(x, torch.tensor([1, 9]))
    assert value.dtype == torch.float32
    assert value == 12.5
    assert "num_classes=3" in repr(loss)


@pytest.mark.untyped
def test_refuses():
    with pytest.raises(ValueError, match="labels must be in"):
        CenterLoss(2, 3)(torch.zeros(1, 2), torch.tensor([3]))
    with pytest.raises(ValueError, match=r"features must be \(n, 2\)"):
        CenterLoss(2, 3)(torch.zeros(1, 4), torch.tensor([0]))
    with pytest.raises(ValueError, match="reduction must be"):
        CenterLoss(2, 3, reduction="none")
    with pytest.raises(ValueError, match="num_classes must be"):
        CenterLoss(2, 0)
