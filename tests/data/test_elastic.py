import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage
from scipy.interpolate import BSpline

from hypersphere.data import Affine, Elastic, Stream


def uniforms(n, draws, seed=0):
    return Stream(seed, 9).uniforms(draws * n).reshape(n, draws)


def slow(image, u, augment):
    """Deform one float64 image with the splines and the interpolation of scipy, without an affine map."""
    vectors = augment.bend * (2 * u[6:].numpy() - 1).reshape(augment.points, augment.points, 2)
    h, w = image.shape[1:]
    knots = np.arange(-3, augment.points + 1)

    def at(n):
        return (np.arange(n) + 0.5) / n * (augment.points - 3)

    def field(values):
        along_rows = BSpline(knots, values, 3)(at(h))
        return BSpline(knots, along_rows.T, 3)(at(w)).T

    rows, columns = np.mgrid[:h, :w].astype(float)
    where = np.stack([rows + field(vectors[..., 1]), columns + field(vectors[..., 0])])
    padded = np.pad(image, ((0, 0), (2, 2), (2, 2)), constant_values=augment.fill)
    return np.stack([ndimage.map_coordinates(c, where + 2, order=1, cval=augment.fill) for c in padded])


@settings(max_examples=30)
@given(st.integers(1, 9), st.integers(1, 9), st.floats(0, 6), st.integers(4, 7), st.integers(0, 99))
def test_agrees_with_the_splines_of_scipy(h, w, bend, points, seed):
    augment = Elastic(bend, points, fill=0.7)
    images = torch.rand(3, 2, h, w, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    u = uniforms(3, augment.draws(images.shape[1:]), seed)
    expected = np.stack([slow(image.numpy(), row, augment) for image, row in zip(images, u, strict=True)])
    np.testing.assert_allclose(augment(images, u).numpy(), expected, atol=1e-10)


def test_without_bending_it_is_the_affine_map():
    images, ranges = torch.rand(4, 1, 8, 9), {"rotation": 0.3, "scale": 0.2, "shear": 0.1, "shift": 1.0, "fill": 1.0}
    u = uniforms(4, 6 + 2 * 25)
    assert torch.equal(Elastic(0.0, 5, **ranges)(images, u), Affine(**ranges)(images, u[:, :6]))


def test_a_bend_by_the_same_vector_everywhere_is_a_shift():
    image, u = torch.arange(1.0, 10.0).reshape(1, 1, 3, 3), torch.full((1, 6 + 32), 0.5)
    u[:, 6::2] = 0.0  # each control point is displaced by one pixel to the left
    torch.testing.assert_close(
        Elastic(1.0, fill=7.0)(image, u)[0, 0], torch.tensor([[7.0, 1, 2], [7, 4, 5], [7, 7, 8]])
    )


def test_a_sample_does_not_depend_on_its_batch():
    augment, images = Elastic(2.0, 5, rotation=0.3), torch.rand(6, 1, 8, 8)
    u = uniforms(6, augment.draws(images.shape[1:]))
    one_by_one = torch.cat([augment(images[i : i + 1], u[i : i + 1]) for i in range(6)])
    assert torch.equal(augment(images, u), one_by_one)


@pytest.mark.parametrize("arguments", [{"bend": -1.0}, {"bend": float("nan")}, {"bend": float("inf")}, {"points": 3}])
def test_refuses(arguments):
    with pytest.raises(ValueError, match="bend must be a finite number ≥ 0 and points ≥ 4"):
        Elastic(**arguments)
