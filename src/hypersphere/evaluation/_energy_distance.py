"""The energy distance between two samples."""

import torch
from jaxtyping import Float
from torch import Tensor


def energy_distance(first: Float[Tensor, "n d"], second: Float[Tensor, "m d"]) -> float:
    r"""Return 2·E‖x − y‖ − E‖x − x'‖ − E‖y − y'‖ (Székely and Rizzo, 2013), computed in float64.

    It is 0 if and only if the samples are equal. It needs no bins, no bandwidth and no network. Means include the zero
    distance of a vector from itself, so the result is never negative. For two samples of the same distribution it is about
    (E‖x − x'‖)·(1/n + 1/m), not 0. Compare only values of equal n and m.

    Args:
        first: Vectors in rows.
        second: Vectors of the same dimension in rows.

    Raises:
        ValueError: If a sample is empty or the dimensions differ.

    >>> energy_distance(torch.tensor([[0.0]]), torch.tensor([[3.0]]))
    6.0
    """
    if not len(first) or not len(second) or first.shape[1] != second.shape[1]:
        raise ValueError(
            f"both samples must hold vectors of the same dimension, got shapes {tuple(first.shape)} and {tuple(second.shape)}"
        )
    x, y = first.detach().double(), second.detach().double()
    exact = "donot_use_mm_for_euclid_dist"  # differences of squared norms would lose precision for near points
    across, within, other = (torch.cdist(a, b, compute_mode=exact).mean() for a, b in ((x, y), (x, x), (y, y)))
    return max(float(2 * across - within - other), 0.0)
