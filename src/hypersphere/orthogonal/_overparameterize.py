"""Orthogonal over-parameterized training of any model (7.3.1)."""

import warnings
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from ..neurons import ChangeReport, Selectors, attach_change_report
from .initial_neurons import Refinement, initialize_neurons
from .layer_selection import ClassifierLike, find_parameter_owners, select_layers
from .maps import MapLike, as_map
from .parametrization import STARTS, Overparameterization, Start, find_parametrization, register


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
    only: Selectors | None = None,
    skip: Selectors = (),
    classifier: ClassifierLike = None,
    generator: torch.Generator | None = None,
) -> nn.Module:
    r"""Let every Linear and Conv layer learn w_i = R v_i with fixed neurons v_i and one R per layer (eq. 7.1), in place.

    Create the optimizer afterwards. A neuron is a flattened filter over the channels of its own group. While R is
    orthogonal, the hyperspherical energy of the neurons cannot change (7.2). The v_i are the current weights of the
    model; :func:`prepare_neurons` gives a plain baseline the same ``redraw``, ``mean``, ``refine`` and ``normalize``.

    :func:`~hypersphere.neurons.get_change_report` tells which layers were changed, which were skipped and why;
    :func:`plan_overparameterize` tells it beforehand. Weights of an unknown kind (``in_proj_weight`` of an attention, the
    Conv1D of transformers, recurrent cells) cause a ``UserWarning`` unless they are named in ``skip``.

    Args:
        model: any network.
        method: ``"cayley"`` (the cheapest), ``"gram_schmidt"``, ``"householder"``, ``"lowdin"`` or ``"exponential"``;
            ``"ogd"``, ``"regularized"`` and ``"unconstrained"`` learn R itself; or any map from a free square matrix to
            R, such as :class:`SymmetricPositive` or a callable on ``(…, n, n)``. A module is copied for each layer.
        blocks: number of diagonal blocks into which R is cut along the channels (F.5). A layer whose channels it does not
            divide, such as a first layer of three, keeps one whole R, which the change report says. A callable chooses
            per layer, and must choose divisors.
        share_blocks: whether all blocks are the same matrix.
        train_neurons: whether to learn V as well (the ablation of table 7.1); the energy can then change.
        redraw: function that draws a weight anew in place, such as ``torch.nn.init.xavier_normal_``; None keeps it.
        mean: number added to every entry of the neurons (the means of table 7.2).
        refine: how to lower the energy of the neurons before training (7.3.7): a :class:`Refinement`, or a callable
            that changes the ``(neurons, dim)`` rows in place.
        normalize: whether to give the neurons unit length (table 7.7).
        start: ``"usual"`` starts R from N(0, 1) for Gram–Schmidt, Householder and Löwdin and from the identity for the
            others. ``"normal"`` starts every method from N(0, 1), as Liu (2020) prints it, orthogonalized for ``"ogd"``.
            ``"identity"`` always starts from the identity, so that an otherwise unchanged model computes the same.
        only: layers to change: names or patterns, types, modules or predicates ``(name, module) → bool``, one or
            several. None means all.
        skip: layers to leave alone, selected in the same ways.
        classifier: the layer that is trained as usual, by name or as a module; False if there is none. By default it is
            the last margin head, otherwise the last Linear layer unless that is the model.
        generator: random generator for R.

    Returns:
        The model.

    Raises:
        ValueError: if no layer is selected, if a weight is tied or computed, and for neurons that are all zero, which
            no R can move.

    >>> net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
    >>> sorted(name for name, _ in overparameterize(net).named_parameters())
    ['0.bias', '0.parametrizations.weight.0.tasks.default.raw', '2.bias', '2.weight']
    """
    if start not in STARTS:
        raise ValueError(f"start must be one of {', '.join(STARTS)}, got {start!r}")
    layers, report = _select(model, only, skip, classifier)
    old = {name for name, _ in model.named_parameters()}
    counts = {name: _count_blocks(name, module, blocks) for name, module in layers.items()}
    prepared = []
    for name, module in layers.items():
        weight: Tensor = module.weight  # type: ignore[assignment]
        neurons = initialize_neurons(weight.detach(), redraw=redraw, mean=mean, refine=refine, normalize=normalize)
        if not train_neurons:
            _refuse_zeros(name, neurons)
        own = Overparameterization(neurons[0].numel(), blocks=counts[name], share=share_blocks)
        own.add(own.active, as_map(method), start, weight.detach(), generator)
        own.plain = {"order": list(module._parameters), "requires_grad": weight.requires_grad}
        report.changed[name] = f"{type(module).__name__}, R by {type(own.rotation.map).__name__}"
        if isinstance(blocks, int) and counts[name] != blocks:
            report.changed[name] += (
                f" in one block, because {blocks} do not divide its {module.weight.shape[1]} channels"  # type: ignore[union-attr, index]
            )
        prepared.append((module, nn.Parameter(neurons) if train_neurons else neurons, own))
    for module, neurons, own in prepared:  # only now, so that an error above leaves the model unchanged
        register(module, "weight", neurons, own)
    report.new_parameters = [name for name, _ in model.named_parameters() if name not in old]
    attach_change_report(model, report)
    return model


def _select(
    model: nn.Module, only: Selectors | None, skip: Selectors, classifier: ClassifierLike
) -> tuple[dict[str, nn.Module], ChangeReport]:
    layers, report = select_layers(model, only, skip, classifier)
    if not layers:
        raise ValueError(
            f"{type(model).__name__} has no Linear or Conv layer to over-parameterize; "
            "classifier=False includes the classifier"
        )
    owners = find_parameter_owners(model)
    for name, module in layers.items():
        if find_parametrization(module) is not None:
            raise ValueError(
                f"layer {name!r} is over-parameterized already: merge(model) first, then train a new R over the result"
            )
        weight = module._parameters.get("weight")
        if parametrize.is_parametrized(module, "weight") or not isinstance(weight, nn.Parameter):
            raise ValueError(
                f"layer {name!r} has a weight that is computed from something else, over-parameterize the plain layer"
            )
        if len(names := owners[id(weight)]) > 1:
            raise ValueError(
                f"layer {name!r} has a tied weight ({', '.join(names)}): one R cannot serve both, "
                "untie it or skip the layer"
            )
    if report.unsupported:
        reasons = "; ".join(f"{name}: {report.skipped[name]}" for name in report.unsupported)
        warnings.warn(f"trained as usual, without R ({reasons}); name them in skip to say so", stacklevel=3)
    return layers, report


def _count_blocks(name: str, module: nn.Module, blocks: int | Callable[[str, nn.Module], int]) -> int:
    count = blocks if isinstance(blocks, int) else blocks(name, module)
    channels = module.weight.shape[1]  # type: ignore[union-attr, index]
    if isinstance(blocks, int) and count > 0 and channels % count:
        return 1
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
