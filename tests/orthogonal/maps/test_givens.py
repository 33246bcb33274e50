import math

import pytest
import torch

from hypersphere.orthogonal import givens
from tests.orthogonal.contracts import OrthogonalContract
from tests.orthogonal.maps.contracts import HandWrittenBackward, MapContract


def one_by_one(x):
    """Multiply dense rotations stage by stage; entry (i, j) belongs to stage n − 1 − i + 2j."""
    n = x.shape[-1]
    result = torch.eye(n, dtype=x.dtype)
    for stage in range(2 * n - 3):
        for i in range(1, n):
            for j in range(i):
                if n - 1 - i + 2 * j == stage:
                    angle = float(x[i, j] - x[j, i]) / 2
                    plane = torch.eye(n, dtype=x.dtype)
                    plane[i - 1, i - 1] = plane[i, i] = math.cos(angle)
                    plane[i, i - 1], plane[i - 1, i] = math.sin(angle), -math.sin(angle)
                    result = result @ plane
    return result


def eliminate(r):
    """Return X with givens(X) = r: the angles that make r triangular, column by column from the bottom."""
    n, x = r.shape[-1], torch.zeros_like(r)
    for stage in range(2 * n - 3):
        for j in range(n):
            i = n - 1 - stage + 2 * j
            if j < i < n:
                angle = math.atan2(float(r[i, j]), float(r[i - 1, j]))
                c, s = math.cos(angle), math.sin(angle)
                r = r.clone()
                r[[i - 1, i]] = torch.stack([c * r[i - 1] + s * r[i], -s * r[i - 1] + c * r[i]])
                x[i, j], x[j, i] = angle, -angle
    assert torch.allclose(r, torch.eye(n, dtype=r.dtype), atol=1e-12)
    return x


class TestGivens(HandWrittenBackward, MapContract):
    function = staticmethod(givens)
    reference = staticmethod(one_by_one)

    def test_every_rotation_is_reached(self):
        for n in (2, 5, 6):
            r = torch.linalg.qr(self.matrices(n, n)).Q
            r[:, 0] *= torch.linalg.det(r).sign()
            assert torch.allclose(givens(eliminate(r)), r, atol=1e-12)

    def test_is_a_rotation(self):
        assert torch.allclose(torch.linalg.det(givens(self.matrices(4, 7, 7))), torch.ones(4, dtype=torch.float64))


class TestMethod(OrthogonalContract):
    method = "givens"

    @pytest.mark.slow  # the graph has every stage of an 18 × 18 matrix
    @pytest.mark.untyped
    def test_compiles_as_one_graph(self):
        super().test_compiles_as_one_graph()
