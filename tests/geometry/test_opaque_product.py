import torch

from hypersphere.geometry.opaque_product import multiply


def test_is_the_product_with_its_gradient():
    a, b = (torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in ((3, 4), (4, 2)))
    assert torch.equal(multiply(a, b), a @ b)
    assert torch.autograd.gradcheck(multiply, (a, b))
    assert torch.autograd.gradcheck(multiply, (a.detach(), b))


def test_the_shape_is_known_without_computing():
    a, b = torch.empty(3, 4, device="meta"), torch.empty(4, 2, device="meta")
    assert multiply(a, b).shape == (3, 2)
