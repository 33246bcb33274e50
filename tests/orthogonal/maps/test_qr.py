import torch

from hypersphere.orthogonal.maps.qr import SignedQ


def test_the_backward_is_that_of_torchs_qr():
    x = torch.randn(3, 6, 6, dtype=torch.float64, requires_grad=True)
    g = torch.randn(3, 6, 6, dtype=torch.float64)
    q, r = torch.linalg.qr(x)
    theirs = q * r.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)
    ours = SignedQ.apply(x, False)
    assert torch.allclose(ours, theirs)
    assert torch.allclose(*(torch.autograd.grad((y * g).sum(), x)[0] for y in (ours, theirs)))


def test_a_column_of_zeros_is_differentiated_as_though_it_had_the_longest_length():
    x = torch.diag(torch.tensor([3.0, 2.0, 0.0], dtype=torch.float64)).requires_grad_()
    filled = torch.diag(torch.tensor([3.0, 2.0, 3.0], dtype=torch.float64)).requires_grad_()
    g = torch.randn(3, 3, dtype=torch.float64)
    ours, theirs = (torch.autograd.grad((SignedQ.apply(y, False) * g).sum(), y)[0] for y in (x, filled))
    assert torch.allclose(ours, theirs)
