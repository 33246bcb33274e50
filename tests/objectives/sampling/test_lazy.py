import pytest
import torch

from hypersphere.objectives import RowSGD
from hypersphere.objectives.sampling.lazy import RowOptimizer, read_row_gradient


def test_rows_of_sparse_and_dense_gradients():
    weight = torch.nn.Parameter(torch.zeros(4, 2))
    weight.grad = torch.sparse_coo_tensor([[3, 1, 3]], torch.ones(3, 2), (4, 2), check_invariants=True)
    positions, gradient = read_row_gradient(weight)
    assert positions.tolist() == [1, 3]
    assert gradient.tolist() == [[1, 1], [2, 2]]
    weight.grad = torch.ones(4, 2)
    assert read_row_gradient(weight).positions is None


def test_from_drawn_rows_to_all_of_them_each_catches_up():
    """Rows that were not drawn get their weight decay when the first dense gradient arrives."""
    weight = torch.nn.Parameter(torch.ones(3, 2))
    optimizer = RowSGD([weight], lr=0.5, weight_decay=0.1)
    for _ in range(2):
        weight.grad = torch.sparse_coo_tensor([[0]], torch.zeros(1, 2), (3, 2), check_invariants=True)
        optimizer.step()
    weight.grad = torch.zeros(3, 2)
    optimizer.step()
    assert torch.allclose(weight, torch.full((3, 2), 0.95**3))


def test_a_closure_is_called_and_its_loss_returned():
    weight = torch.nn.Parameter(torch.ones(2))

    def closure():
        loss = weight.square().sum()
        loss.backward()
        return loss

    assert RowSGD([weight], lr=0.1).step(closure) == 2
    assert torch.allclose(weight, torch.full((2,), 0.8))


def test_a_member_must_say_how_it_steps():
    weight = torch.nn.Parameter(torch.ones(2))
    weight.grad = torch.ones(2)
    with pytest.raises(TypeError, match="must define update"):
        RowOptimizer([weight], {"lr": 0.1, "weight_decay": 0.0}).step()
