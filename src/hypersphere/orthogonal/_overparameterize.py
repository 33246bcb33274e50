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
    r"""Replace the weight of every Linear and Conv layer by w_i = R v_i with fixed v_i and a learned R (eq. 7.1), in place.

    Create the optimizer afterwards. A neuron is a filter, flattened over the channels of its group. The v_i are the
    current weights of the model. While R is orthogonal, the hyperspherical energy of the neurons is constant (7.2).
    :func:`prepare_neurons` applies the same ``redraw``, ``mean``, ``refine`` and ``normalize`` to a baseline without R.

    :func:`~hypersphere.neurons.get_change_report` lists the changed layers and the skipped layers with the reason;
    :func:`plan_overparameterize` lists them in advance. Unsupported weights (``in_proj_weight`` of an attention, the
    Conv1D of transformers, recurrent cells) cause a ``UserWarning`` unless they are named in ``skip``.

    Args:
        model: Any network.
        method: ``"cayley"`` (the cheapest), ``"gram_schmidt"``, ``"householder"``, ``"lowdin"`` or ``"exponential"``.
            ``"ogd"``, ``"regularized"`` and ``"unconstrained"`` learn R directly. Alternatively any map from an
            unconstrained square matrix to R, such as :class:`SymmetricPositive` or a callable on ``(…, n, n)``. A module is
            copied for each layer.
        blocks: Number of diagonal blocks of R along the channels (F.5). If it does not divide the channels of a layer, as
            in a first layer with three channels, R is a single block and the change report says so. A callable
            ``(name, module) → int`` chooses the number per layer and must return a divisor.
        share_blocks: Whether all blocks are the same matrix.
        train_neurons: Whether to learn V as well (the ablation of table 7.1). The energy can then change.
        redraw: Function that reinitializes a weight in place, such as ``torch.nn.init.xavier_normal_``. None keeps the
            weight.
        mean: Number added to every entry of the neurons (the means of table 7.2).
        refine: Method that lowers the energy of the neurons before training (7.3.7): a :class:`Refinement`, or a callable
            that changes the ``(neurons, dim)`` rows in place.
        normalize: Whether to scale the neurons to unit length (table 7.7).
        start: Initialization. ``"usual"`` initializes X from N(0, 1) for Gram–Schmidt, Householder and Löwdin, and R with
            the identity for the other methods. ``"normal"`` uses N(0, 1) for every method, as printed in Liu (2020), and
            orthogonalizes it for ``"ogd"``. ``"identity"`` always initializes R with the identity, so that an otherwise
            unchanged model computes the same outputs.
        only: Layers to change: names or patterns, types, modules or predicates ``(name, module) → bool``, one or
            several. None means all.
        skip: Layers to leave unchanged, selected in the same ways.
        classifier: The classification layer, which is trained without R, by name or as a module; False if there is none.
            By default it is the last margin head, otherwise the last Linear layer unless that is the model itself.
        generator: Random generator for R.

    Returns:
        The model.

    Raises:
        ValueError: If no layer is selected, a weight is tied or computed, or all neurons of a layer are zero, because a
            zero vector stays zero under every R.

    >>> net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
    >>> sorted(name for name, _ in overparameterize(net).named_parameters())
    ['0.bias', '0.parametrizations.weight.0.tasks.default.raw', '2.bias', '2.weight']
    """
    if start not in STARTS:
        raise ValueError(f"start must be one of {', '.join(STARTS)}, got {start!r}")
    layers, report = _select_plain_layers(model, only, skip, classifier)
    old_names = {name for name, _ in model.named_parameters()}
    counts = {name: _count_blocks(name, module, blocks) for name, module in layers.items()}
    prepared = []
    for name, module in layers.items():
        weight: Tensor = module.weight  # type: ignore[assignment]
        neurons = initialize_neurons(weight.detach(), redraw=redraw, mean=mean, refine=refine, normalize=normalize)
        if not train_neurons:
            _refuse_zeros(name, neurons)
        parametrization = Overparameterization(neurons[0].numel(), blocks=counts[name], share=share_blocks)
        parametrization.add(parametrization.active, as_map(method), start, weight.detach(), generator)
        parametrization.original_layer = {"order": list(module._parameters), "requires_grad": weight.requires_grad}
        report.changed[name] = f"{type(module).__name__}, R by {type(parametrization.rotation.map).__name__}"
        if isinstance(blocks, int) and counts[name] != blocks:
            report.changed[name] += (
                f" in one block, because {blocks} do not divide its {module.weight.shape[1]} channels"  # type: ignore[union-attr, index]
            )
        prepared.append((module, nn.Parameter(neurons) if train_neurons else neurons, parametrization))
    for module, neurons, parametrization in prepared:  # only now, so that an error above leaves the model unchanged
        register(module, "weight", neurons, parametrization)
    report.new_parameters = [name for name, _ in model.named_parameters() if name not in old_names]
    attach_change_report(model, report)
    return model


def _select_plain_layers(
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
                f"layer {name!r} has a weight that is computed from something else: over-parameterize the plain layer"
            )
        if len(names := owners[id(weight)]) > 1:
            raise ValueError(
                f"layer {name!r} has a tied weight ({', '.join(names)}): one R cannot serve both, "
                "untie it or skip the layer"
            )
    if report.unsupported:
        reasons = "; ".join(f"{name}: {report.skipped[name]}" for name in report.unsupported)
        warnings.warn(f"layers trained without R ({reasons}); name them in skip to silence this warning", stacklevel=3)
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
            f"the neurons of layer {name!r} are all zero (as in a new T-Net's last layer), which no R can move: "
            "skip the layer, redraw it or train its neurons"
        )
    if zero.any():
        warnings.warn(f"{int(zero.sum())} neurons of layer {name!r} are zero, which no R can move", stacklevel=3)
