import pytest
import torch

from hypersphere.energy import nearest_pairs, separation
from hypersphere.geometry import angle


class TestSeparation:
    def test_is_the_least_angle(self):
        w = torch.randn(30, 4)
        angles = angle(w, w, pairwise=True) + 10 * torch.eye(30)
        assert separation(w).item() == pytest.approx(angles.min().item(), rel=1e-5)

    def test_is_exact_for_neurons_that_nearly_coincide(self):
        w = torch.randn(30, 4)
        w[7] = 2 * w[3]
        w[7, 0] += 1e-5 * w[3].norm()
        expected = angle(w[3].double(), w[7].double()).item()
        assert separation(w).item() == pytest.approx(expected, rel=1e-6)

    def test_chunks_of_many_neurons(self):
        w = torch.randn(9000, 3)
        pairs, angles = nearest_pairs(w, 4)
        assert (angles.diff() >= 0).all()
        assert torch.allclose(angle(w[pairs[:, 0]], w[pairs[:, 1]]), angles, rtol=1e-3)
        assert (pairs[:, 0] < pairs[:, 1]).all()

    def test_as_many_pairs_as_there_are(self):
        assert nearest_pairs(torch.eye(3), 50)[0].tolist() in (
            [[0, 1], [0, 2], [1, 2]],
            [[0, 2], [0, 1], [1, 2]],
            [[1, 2], [0, 1], [0, 2]],
        )
        with pytest.raises(ValueError, match="count must be"):
            nearest_pairs(torch.eye(3), 0)
