import torch

from hypersphere.objectives.sampling import select_rows


def test_rows_and_their_sparse_gradient():
    weight = torch.nn.Parameter(torch.randn(8, 3))
    positions = torch.tensor([0, 3])
    rows = select_rows(weight, positions, 2)
    assert torch.equal(rows, weight[[0, 1, 6, 7]])
    (rows * torch.arange(4.0).unsqueeze(-1)).sum().backward()
    dense = torch.zeros(8, 3)
    dense[[0, 1, 6, 7]] = torch.arange(4.0).unsqueeze(-1).expand(4, 3)
    assert weight.grad.layout == torch.sparse_coo
    assert weight.grad.coalesce().values().shape == (4, 3)
    assert torch.equal(weight.grad.to_dense(), dense)


def test_gradients_of_several_batches_add_up():
    weight = torch.nn.Parameter(torch.randn(5, 3))
    for positions in (torch.tensor([0, 3]), torch.tensor([3, 4])):
        select_rows(weight, positions, 1).sum().backward()
    assert weight.grad.to_dense().sum(-1).tolist() == [3, 0, 0, 6, 3]
