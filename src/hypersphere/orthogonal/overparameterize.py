"""Orthogonal over-parameterized training of any model (7.3.1)."""

import math
from collections.abc import Callable, Iterable
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from ..geometry import normalize as unit
from ..neurons import Selector, neuron_layers, output_layer
from .maps import MapLike, as_map
from .parametrization import Overparameterization, Start, find, register

Refine: TypeAlias = "Literal['energy', 'half_space_energy'] | Callable[[Tensor], object] | None"


def overparameterize(
    model: nn.Module,
    method: MapLike = "cayley",
    *,
    blocks: int | Callable[[str, nn.Module], int] = 1,
    share_blocks: bool = False,
    train_neurons: bool = False,
    refine: Refine = None,
    normalize: bool = False,
    redraw: bool = False,
    start: Start = "text",
    skip: Iterable[Selector] | None = None,
    generator: torch.Generator | None = None,
) -> nn.Module:
    r"""Let every Linear and Conv layer learn w_i = R v_i: the neurons v_i fixed, R shared in the layer (eq. 7.1).

    The model is changed in place and returned; make the optimizer afterwards. A neuron is a flattened filter, of its
    own group's channels. Its hyperspherical energy cannot change while R is orthogonal (7.2).

    - ``method``: ``"cayley"`` (cheapest), ``"gram_schmidt"``, ``"householder"``, ``"lowdin"``, ``"exponential"``;
      ``"ogd"``, ``"regularized"``, ``"unconstrained"`` learn R itself; or any map from a free square matrix to R, such as
      :class:`SymmetricPositive` or a callable on ``(…, n, n)``. A module with parameters is copied for each layer.
    - ``blocks``: cut R into this many blocks along the channels (F.5); a callable ``(name, module) → int`` chooses per
      layer. ``share_blocks`` uses one block for all.
    - ``redraw``: draw the neurons anew from N(0, 2/dim) as the text does [38]; by default the present weight is kept.
    - ``refine``: lower the energy of the neurons first, ``"energy"``, ``"half_space_energy"`` (7.3.7), or a callable
      that changes the ``(neurons, dim)`` rows in place; ``normalize`` gives them unit length.
    - ``train_neurons``: learn V as well (the ablation of table 7.1); the energy is then free to change.
    - ``start``: ``"text"`` starts R from N(0, 1) for the unrolled methods and from the identity for the others;
      ``"identity"`` always from the identity, so that without ``redraw``, ``refine`` and ``normalize`` the model computes
      what it did.
    - ``skip``: layers to leave alone; None means the classifier, the last Linear layer, unless the model is that layer.

    >>> net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
    >>> sorted(name for name, _ in overparameterize(net).named_parameters())
    ['0.bias', '0.parametrizations.weight.0.tasks.default.raw', '2.bias', '2.weight']
    """
    if start not in ("text", "identity"):
        raise ValueError(f'start must be "text" or "identity", got {start!r}')
    layers = _select(model, skip)
    counts = {name: _blocks(name, module, blocks) for name, module in layers.items()}
    refinement = _refinement(refine)
    prepared = []
    for name, module in layers.items():
        weight: Tensor = module.weight  # type: ignore[assignment]
        neurons = _neurons(weight.detach(), redraw, refinement, normalize, generator)
        own = Overparameterization(neurons[0].numel(), blocks=counts[name], share=share_blocks)
        own.add(own.active, as_map(method), start, weight.detach(), generator)
        own.plain = {"order": list(module._parameters), "requires_grad": weight.requires_grad}
        prepared.append((module, nn.Parameter(neurons) if train_neurons else neurons, own))
    for module, neurons, own in prepared:  # only now, so that an error above leaves the model as it was
        register(module, neurons, own)
    return model


def _select(model: nn.Module, skip: Iterable[Selector] | None) -> dict[str, nn.Module]:
    if skip is None:
        classifier = output_layer(model)
        skip = [classifier] if classifier else []
    layers = neuron_layers(model, skip=skip)
    if not layers:
        raise ValueError(
            f"{type(model).__name__} has no Linear or Conv layer to over-parameterize; skip=() includes the classifier"
        )
    owners: dict[int, list[str]] = {}
    for name, module in model.named_modules():
        for key, parameter in module._parameters.items():
            if parameter is not None:
                owners.setdefault(id(parameter), []).append(f"{name}.{key}" if name else key)
    for name, module in layers.items():
        if find(module) is not None:
            raise ValueError(
                f"layer {name!r} is over-parameterized already: merge(model) first, then train a new R over the result"
            )
        if parametrize.is_parametrized(module, "weight") or not isinstance(
            module._parameters.get("weight"), nn.Parameter
        ):
            raise ValueError(
                f"layer {name!r} has a weight that is computed from something else, over-parameterize the plain layer"
            )
        shared = owners[id(module.weight)]
        if len(shared) > 1:
            raise ValueError(
                f"layer {name!r} has a tied weight ({', '.join(shared)}): one R cannot serve both, untie it or skip the layer"
            )
    return layers


def _blocks(name: str, module: nn.Module, blocks: int | Callable[[str, nn.Module], int]) -> int:
    count = blocks if isinstance(blocks, int) else blocks(name, module)
    channels = module.weight.shape[1]  # type: ignore[union-attr, index]
    if count < 1 or channels % count:
        raise ValueError(
            f"blocks must divide the {channels} channels that a neuron of layer {name!r} sees, got {count!r}"
        )
    return count


def _neurons(
    weight: Tensor,
    redraw: bool,
    refinement: Callable[[Tensor], object] | None,
    normalize: bool,
    generator: torch.Generator | None,
) -> Tensor:
    if redraw:
        std = math.sqrt(2 / weight[0].numel())
        neurons = torch.randn(weight.shape, generator=generator, dtype=weight.dtype, device=weight.device) * std
    else:
        neurons = weight.clone(memory_format=torch.contiguous_format)
    rows = neurons.flatten(1)  # a view: the refinement works in place
    if refinement is not None:
        refinement(rows)
    if normalize:
        rows.copy_(unit(rows))
    return neurons


def _refinement(refine: Refine) -> Callable[[Tensor], object] | None:
    if refine is None or callable(refine):
        return refine
    if refine not in ("energy", "half_space_energy"):
        raise ValueError(
            f'refine must be None, "energy", "half_space_energy" or a callable on (neurons, dim) rows, got {refine!r}'
        )
    from ..energy import refine_  # the parts do not need each other otherwise

    return lambda rows: refine_(rows, half_space=refine == "half_space_energy")
