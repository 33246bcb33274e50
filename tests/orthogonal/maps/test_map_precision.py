import torch

from hypersphere.orthogonal.maps.map_precision import find_missing, get_skew_part


def test_skew_is_a_projection():
    x = torch.randn(2, 4, 4)
    assert torch.equal(get_skew_part(x), -get_skew_part(x).mT)
    assert torch.equal(get_skew_part(get_skew_part(x)), get_skew_part(x))


def test_missing_lengths_and_what_stands_for_them():
    absent, instead = find_missing(
        torch.tensor([[3.0, 1e-3, 1e-8, 0.0], [0.0, 0.0, 0.0, 0.0], [1e-30, 1e-30, 0.0, 0.0]])
    )
    assert absent.tolist() == [[False, False, True, True], [True] * 4, [True] * 4]
    assert instead.tolist() == [[3.0], [1.0], [1.0]]
