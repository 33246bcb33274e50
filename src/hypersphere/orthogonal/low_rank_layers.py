"""Replacement of the weights of a network by low-rank products, which `LowRankEnergy` regularizes."""

import torch
from torch import nn

from ..neurons import Selectors
from .layer_selection import ClassifierLike, select_layers


def factorize(
    model: nn.Module,
    rank: int = 8,
    *,
    only: Selectors | None = None,
    skip: Selectors = (),
    classifier: ClassifierLike = None,
    generator: torch.Generator | None = None,
) -> nn.Module:
    """Replace the weights of the hidden layers by products of rank ``rank`` (E.23), in place.

    :class:`~hypersphere.energy.LowRankEnergy` regularizes them. A layer with n neurons of dimension m then has r(m + n)
    parameters instead of mn. Layers with n or m below ``rank`` are not changed.

    Args:
        model: The network, changed in place.
        rank: Rank r of every weight.
        only: Layers to change, see :func:`plan_overparameterize`.
        skip: Layers to leave unchanged.
        classifier: The classification layer, which is left unchanged, or False if there is none.
        generator: Random generator for the fixed projections.

    Returns:
        The model.

    Raises:
        ValueError: If no layer is large enough.

    >>> net = factorize(torch.nn.Sequential(torch.nn.Linear(64, 32, bias=False), torch.nn.Linear(32, 10)), rank=4)
    >>> sum(p.numel() for p in net[0].parameters())
    384
    >>> hs.energy.LowRankEnergy(net)().requires_grad
    True
    """
    from ..energy import low_rank_bilateral  # imported here, because nothing else in this package needs energy

    if rank < 1:
        raise ValueError(f"rank must be an integer ≥ 1, got {rank!r}")
    chosen = select_layers(model, only, skip, classifier)[0]
    large = {name: layer for name, layer in chosen.items() if rank <= min(layer.weight.flatten(1).shape)}  # type: ignore[operator]
    if not large:
        raise ValueError(f"{type(model).__name__} has no Linear or Conv layer of rank {rank} with these arguments")
    for layer in large.values():
        low_rank_bilateral(layer, rank, int(torch.randint(2**31, (), generator=generator)))
    return model
