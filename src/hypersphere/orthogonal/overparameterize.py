"""Orthogonal over-parameterized training of any model (7.3.1)."""

import warnings
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from ..neurons import Selector
from .coverage import ClassifierLike, coverage
from .initial_neurons import Refinement, start_neurons
from .maps import MapLike, as_map
from .parametrization import Overparameterization
from .reparametrization import STARTS, Start, find, register


def overparameterize(
    model: nn.Module,
    method: MapLike = "cayley",
    *,
    blocks: int | Callable[[str, nn.Module], int] = 1,
    share_blocks: bool = False,
    train_neurons: bool = False,
    redraw: Callable[[Tensor], object] | None = None,
    mean: float = 0.0,
    refine: Refinement | Callable[[Tensor], object] | None = None,
    normalize: bool = False,
    start: Start = "usual",
    only: Iterable[Selector] | None = None,
    skip: Iterable[Selector] = (),
    classifier: ClassifierLike = None,
    generator: torch.Generator | None = None,
) -> nn.Module:
    r"""Let every Linear and Conv layer learn w_i = R v_i: the neurons v_i fixed, R shared in the layer (eq. 7.1).

    The model is changed in place and returned; make the optimizer afterwards. A neuron is a flattened filter, of its
    own group's channels. Its hyperspherical energy cannot change while R is orthogonal (7.2). The neurons are the
    model's present weights, so that an arm and its baseline begin alike; :func:`prepare_neurons` gives a plain baseline
    the same ``redraw``, ``mean``, ``refine`` and ``normalize``. What is left out and why, :func:`coverage` tells;
    weights that nobody asked to leave out and that this function does not know (``in_proj_weight`` of an attention,
    the Conv1D of transformers, recurrent cells) cause a ``UserWarning`` unless they are named in ``skip``.

    Args:
        model: changed in place.
        method: ``"cayley"`` (cheapest), ``"gram_schmidt"``, ``"householder"``, ``"lowdin"``, ``"exponential"``;
            ``"ogd"``, ``"regularized"``, ``"unconstrained"`` learn R itself; or any map from a free square matrix to R,
            such as :class:`SymmetricPositive` or a callable on ``(…, n, n)``. A module is copied for each layer.
        blocks: cut R into this many blocks along the channels (F.5); a callable chooses per layer.
        share_blocks: whether one block serves for all.
        train_neurons: learn V as well (the ablation of table 7.1); the energy is then free to change.
        redraw: draws a weight anew in place, such as ``torch.nn.init.xavier_normal_``; None keeps the present one.
        mean: added to every neuron's entries (the means of table 7.2).
        refine: lowers the energy of the neurons first (7.3.7): a :class:`Refinement`, or a callable that changes the
            ``(neurons, dim)`` rows in place.
        normalize: whether the neurons then get unit length (table 7.7).
        start: ``"usual"`` starts R from N(0, 1) for Gram–Schmidt, Householder and Löwdin and from the identity for
            the others; ``"normal"`` from N(0, 1) for every method, as Liu (2020) prints it, orthogonalised for
            ``"ogd"``; ``"identity"`` always from the identity, so that an otherwise unchanged model computes what it did.
        only: layers to choose: names, patterns, types, modules or predicates; None for all.
        skip: layers to leave alone, chosen in the same ways.
        classifier: the layer that is trained as usual, by name or as a module, or False. By default it is the last
            margin head, else the last Linear layer unless that is the model.
        generator: draws R.

    Returns:
        The model. Raises ``ValueError`` if no layer is left, if a weight is tied or computed, and for neurons that are
        all zero, which no R can move.

    >>> net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
    >>> sorted(name for name, _ in overparameterize(net).named_parameters())
    ['0.bias', '0.parametrizations.weight.0.tasks.default.raw', '2.bias', '2.weight']
    """
    if start not in STARTS:
        raise ValueError(f"start must be one of {', '.join(STARTS)}, got {start!r}")
    layers = _select(model, only, skip, classifier)
    counts = {name: _blocks(name, module, blocks) for name, module in layers.items()}
    prepared = []
    for name, module in layers.items():
        weight: Tensor = module.weight  # type: ignore[assignment]
        neurons = start_neurons(weight.detach(), redraw=redraw, mean=mean, refine=refine, normalize=normalize)
        if not train_neurons:
            _refuse_zeros(name, neurons)
        own = Overparameterization(neurons[0].numel(), blocks=counts[name], share=share_blocks)
        own.add(own.active, as_map(method), start, weight.detach(), generator)
        own.plain = {"order": list(module._parameters), "requires_grad": weight.requires_grad}
        prepared.append((module, nn.Parameter(neurons) if train_neurons else neurons, own))
    for module, neurons, own in prepared:  # only now, so that an error above leaves the model as it was
        register(module, "weight", neurons, own)
    return model


def refuse_shared(model: nn.Module, layers: dict[str, nn.Module]) -> None:
    """A ``ValueError`` for a weight that two modules hold: one R cannot serve both."""
    owners: dict[int, list[str]] = {}
    for name, module in model.named_modules():
        for key, parameter in module._parameters.items():
            if parameter is not None:
                owners.setdefault(id(parameter), []).append(f"{name}.{key}" if name else key)
    for name, module in layers.items():
        shared = owners.get(id(getattr(module, "weight", None)), [])
        if len(shared) > 1:
            raise ValueError(
                f"layer {name!r} has a tied weight ({', '.join(shared)}): one R cannot serve both, "
                "untie it or skip the layer"
            )


def _select(
    model: nn.Module, only: Iterable[Selector] | None, skip: Iterable[Selector], classifier: ClassifierLike
) -> dict[str, nn.Module]:
    found = coverage(model, only=only, skip=skip, classifier=classifier)
    if not found.chosen:
        raise ValueError(
            f"{type(model).__name__} has no Linear or Conv layer to over-parameterize; "
            "classifier=False includes the classifier"
        )
    for name, module in found.chosen.items():
        if find(module) is not None:
            raise ValueError(
                f"layer {name!r} is over-parameterized already: merge(model) first, then train a new R over the result"
            )
        plain = isinstance(module._parameters.get("weight"), nn.Parameter)
        if parametrize.is_parametrized(module, "weight") or not plain:
            raise ValueError(
                f"layer {name!r} has a weight that is computed from something else, over-parameterize the plain layer"
            )
    refuse_shared(model, found.chosen)
    if found.unsupported:
        reasons = "; ".join(f"{name}: {found.left_out[name]}" for name in found.unsupported)
        warnings.warn(f"trained as usual, without R ({reasons}); name them in skip to say so", stacklevel=3)
    return found.chosen


def _blocks(name: str, module: nn.Module, blocks: int | Callable[[str, nn.Module], int]) -> int:
    count = blocks if isinstance(blocks, int) else blocks(name, module)
    channels = module.weight.shape[1]  # type: ignore[union-attr, index]
    if count < 1 or channels % count:
        raise ValueError(
            f"blocks must divide the {channels} channels that a neuron of layer {name!r} sees, got {count!r}"
        )
    return count


def _refuse_zeros(name: str, neurons: Tensor) -> None:
    zero = ~neurons.flatten(1).any(1)
    if zero.all():
        raise ValueError(
            f"the neurons of layer {name!r} are all zero (the last layer of a T-Net starts so), which no R can move: "
            "skip the layer, redraw it or train its neurons"
        )
    if zero.any():
        warnings.warn(f"{int(zero.sum())} neurons of layer {name!r} are zero, which no R can move", stacklevel=3)
