"""The energies of a network's layers as plain numbers, for logs and pictures."""

from typing import Literal

import torch
from torch import nn

from .hyperspherical import mean_energies
from .kernels import Distance, Kernel, riesz_kernel
from .mhe import MHE


@torch.no_grad()
def layer_energies(
    model: nn.Module,
    s: float = 2,
    half_space: bool = False,
    distance: Distance = "euclidean",
    classifier: nn.Module | str | Literal[False] | None = None,
    *,
    kernel: Kernel | None = None,
) -> dict[str, float]:
    """The mean energy of every layer with two or more neurons, by name, the output layer included, all in one space.

    The layers are those that :class:`MHE` regularises, so a head that is held beside the model is given as
    ``classifier`` and goes by that name. ``s``, ``half_space``, ``distance`` and ``kernel`` are those of
    :func:`~hypersphere.energy.hyperspherical_energy`; nothing here is differentiated.

    >>> layer_energies(torch.nn.Sequential(torch.nn.Flatten())), layer_energies(torch.nn.Linear(3, 1))
    ({}, {})
    >>> layer = torch.nn.Linear(3, 3)
    >>> _ = torch.nn.init.eye_(layer.weight)
    >>> layer_energies(torch.nn.Sequential(layer))
    {'0': 0.5}
    """
    f = riesz_kernel(s, distance, kernel)
    try:
        layers = MHE(model, 1.0, classifier=classifier).weights()
    except ValueError as error:
        if "no layer of" not in str(error):
            raise
        return {}
    return {name: mean_energies(weight, f, half_space).mean().item() for name, weight in layers.items()}
