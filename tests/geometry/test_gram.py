import torch

from hypersphere.geometry import orthogonality, orthonormality


def brute_force(w, keep_length):
    total = 0.0
    for i, a in enumerate(w):
        for j, b in enumerate(w):
            target = (1.0 if i == j else 0.0) if keep_length else (float(a @ b) if i == j else 0.0)
            total += (float(a @ b) - target) ** 2
    return total


def test_agrees_with_the_double_sum():
    w = torch.randn(5, 7, dtype=torch.float64)
    assert torch.isclose(orthonormality(w), torch.tensor(brute_force(w, True), dtype=torch.float64))
    assert torch.isclose(orthogonality(w), torch.tensor(brute_force(w, False), dtype=torch.float64))


def test_zero_where_it_should_be():
    q = torch.linalg.qr(torch.randn(6, 6, dtype=torch.float64))[0][:4]
    assert orthonormality(q) < 1e-25
    assert orthogonality(torch.diag(torch.rand(4, dtype=torch.float64)) @ q) < 1e-25
    assert orthonormality(2 * q) > 1


def test_batches_add_up_and_half_precision_is_summed_in_float32():
    w = torch.randn(3, 4, 6)
    assert torch.isclose(orthonormality(w), sum(orthonormality(x) for x in w))
    assert orthonormality(w.bfloat16()).dtype == torch.float32
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.isclose(orthogonality(w), sum(orthogonality(x) for x in w))


def test_gradcheck():
    w = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(orthonormality, w)
    assert torch.autograd.gradcheck(orthogonality, w)
