"""Low-rank layers for a whole network: what `LowRankEnergy` regularizes."""

import torch
from torch import Tensor, nn

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
    """Give the hidden layers of a network weights of low rank (E.23), which :class:`~hypersphere.energy.LowRankEnergy` spreads.

    A layer of n neurons with m numbers each then has r(m + n) parameters instead of mn. Layers with fewer than ``rank``
    neurons or numbers stay as they are.

    Args:
        model: the network, changed in place.
        rank: the rank r of every weight.
        only: layers to change, see :func:`plan_overparameterize`.
        skip: layers to leave out.
        classifier: the layer to leave alone, or False.
        generator: draws the fixed projections.

    Returns:
        The model.

    Raises:
        ValueError: if no layer is large enough.

    >>> net = factorize(torch.nn.Sequential(torch.nn.Linear(64, 32, bias=False), torch.nn.Linear(32, 10)), rank=4)
    >>> sum(p.numel() for p in net[0].parameters())
    384
    >>> hs.energy.LowRankEnergy(net)().requires_grad
    True
    """
    from ..energy import low_rank_bilateral  # as for Refinement, the parts do not need each other otherwise

    if rank < 1:
        raise ValueError(f"rank must be an integer ≥ 1, got {rank!r}")
    chosen = select_layers(model, only, skip, classifier)[0]
    large = {name: layer for name, layer in chosen.items() if rank <= min(layer.weight.flatten(1).shape)}  # type: ignore[operator]
    if not large:
        raise ValueError(f"{type(model).__name__} has no Linear or Conv layer of rank {rank} with these arguments")
    for layer in large.values():
        low_rank_bilateral(layer, rank, int(torch.randint(2**31, (), generator=generator)))
    return model


def multiply_factors(model: nn.Module) -> dict[str, Tensor]:
    """Return the tensors of the plain network: in place of the factors of :func:`factorize`, the weights that they make.

    The model stays as it is. Without factors this is its ``state_dict()``.

    >>> net = factorize(torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.Linear(32, 10)), rank=4)
    >>> sorted(multiply_factors(net))
    ['0.bias', '0.weight', '1.bias', '1.weight']
    """
    from ..energy import LowRankBilateral

    tensors: dict[str, Tensor] = model.state_dict()
    for path, module in model.named_modules():
        for name, form in getattr(module, "parametrizations", nn.ModuleDict()).named_children():
            if isinstance(form[0], LowRankBilateral):  # type: ignore[index]
                start = f"{path}." if path else ""
                inside = f"{start}parametrizations.{name}."
                tensors = {key: value for key, value in tensors.items() if not key.startswith(inside)}
                tensors[start + name] = getattr(module, name)
    return tensors
