"""Merging of learned rotations into the weights after training, permanently or temporarily."""

import torch
from torch import Tensor, nn

from ..neurons import ChangeReport, Selector, Selectors, as_selectors, attach_change_report, check_selectors, matches
from .finetuning.adapter import Adapter
from .finetuning.freezing import freeze_parameter, thaw
from .finetuning.quantized_linear import is_quantized, release
from .parametrization import RotatedWeight, Site, find_rotated, require_rotated, unregister


def merge(
    model: nn.Module,
    *,
    keep: bool = False,
    undo: bool = False,
    only: Selectors | None = None,
    skip: Selectors = (),
) -> nn.Module:
    """Multiply the R of the active task into the weights, in place, and restore the original keys, shapes and speed.

    Undoes the change of the model by :func:`overparameterize` or :func:`finetune` and keeps what was learned. Weights
    become new parameters that are trainable if they were before, so create a new optimizer. Once no rotation is left,
    everything that :func:`finetune` froze is trainable again. To learn a new R for the merged neurons (progressive
    training, F.8), call :func:`overparameterize` or :func:`finetune` again.
    :func:`~hypersphere.neurons.get_change_report` lists the merged layers.

    Args:
        model: A model changed by :func:`overparameterize` or :func:`finetune`.
        keep: Whether to store the effective weights in addition to the fixed weights and R. The model is then as fast as
            a plain one and holds one more copy of its weights; :func:`unmerge` undoes this exactly.
        undo: Whether to discard R instead and restore every fixed weight bit for bit.
        only: Layers to merge: names or patterns, types, modules or predicates ``(name, module) → bool``, one or
            several. None means all.
        skip: Layers that keep their R, selected in the same ways.

    Returns:
        The model.

    Raises:
        ValueError: If no selected layer has a rotation, a weight has another parametrization on top, or both ``keep`` and
            ``undo`` are given. Also if a layer is quantized, because its weight would have to be rounded again;
            ``undo=True`` removes its R, and ``skip`` leaves it unchanged.

    >>> from hypersphere.orthogonal import overparameterize
    >>> net = torch.nn.Linear(4, 2)
    >>> list(merge(overparameterize(net)).state_dict())
    ['weight', 'bias']
    """
    if keep and undo:
        raise ValueError("merge takes keep=True or undo=True, not both")
    sites, report = _select_sites(model, only, skip)
    for name, site in sites.items():
        _refuse_unmergeable(name, site, undo)
        result = "R multiplied into a copy of its weight" if keep else "R multiplied into its weight"
        report.changed[name] = f"{_get_plain_name(site.module)}, {'R removed' if undo else result}"
    if keep:
        for site in sites.values():
            with torch.no_grad():
                site.parametrization.merged_weight = None
                site.parametrization.merged_weight = getattr(site.module, site.parameter).detach().clone()
    else:
        for site in sites.values():
            release(site.module) if is_quantized(site.module) else _merge_layer(site, undo)
        if not find_rotated(model):
            thaw(model)
        else:  # other layers are still being fine-tuned, so the merged weights stay frozen
            for site in sites.values():
                if isinstance(site.parametrization, Adapter) and not is_quantized(site.module):
                    freeze_parameter(site.module, site.parameter)
    attach_change_report(model, report)
    return model


def unmerge(model: nn.Module) -> nn.Module:
    """Undo ``merge(model, keep=True)`` and restore the fixed weights and R bit for bit.

    Args:
        model: A model merged with ``keep=True``.

    Returns:
        The model.

    Raises:
        ValueError: If the model is not merged with ``keep=True``.

    >>> from hypersphere.orthogonal import overparameterize
    >>> net, x = overparameterize(torch.nn.Linear(4, 2)), torch.randn(3, 4)
    >>> torch.equal(unmerge(merge(net, keep=True))(x), net(x))
    True
    """
    merged = {
        name: site for name, site in find_rotated(model).items() if site.parametrization.merged_weight is not None
    }
    if not merged:
        raise ValueError(f"{type(model).__name__} is not merged with keep=True, so there is nothing to undo")
    for site in merged.values():
        site.parametrization.merged_weight = None
    attach_change_report(
        model,
        ChangeReport({name: f"{_get_plain_name(site.module)}, R is applied again" for name, site in merged.items()}),
    )
    return model


@torch.no_grad()
def compute_plain_weights(model: nn.Module) -> dict[str, Tensor]:
    """Return the ``state_dict()`` of the equivalent plain network, without changing the model.

    Rotations of :func:`overparameterize` and :func:`finetune` and factors of :func:`factorize` are multiplied into the
    weights.

    Raises:
        ValueError: If a tuned layer has a quantized weight.

    >>> from hypersphere.orthogonal import factorize
    >>> net = factorize(torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.Linear(32, 10)), rank=4)
    >>> sorted(compute_plain_weights(net))
    ['0.bias', '0.weight', '1.bias', '1.weight']
    """
    from ..energy import LowRankBilateral  # imported here, because nothing else in this module needs energy

    for name, site in find_rotated(model).items():
        if is_quantized(site.module):
            _refuse_unmergeable(name, site, undo=False)
    tensors: dict[str, Tensor] = model.state_dict()
    for path, module in model.named_modules():
        for name, parametrizations in getattr(module, "parametrizations", nn.ModuleDict()).named_children():
            if isinstance(parametrizations[0], LowRankBilateral | RotatedWeight):  # type: ignore[index]
                prefix = f"{path}." if path else ""
                factors = f"{prefix}parametrizations.{name}."
                tensors = {key: value for key, value in tensors.items() if not key.startswith(factors)}
                tensors[prefix + name] = getattr(module, name)
    return tensors


def _select_sites(model: nn.Module, only: Selectors | None, skip: Selectors) -> tuple[dict[str, Site], ChangeReport]:
    sites, report = require_rotated(model), ChangeReport()
    only, skip = None if only is None else as_selectors(only), as_selectors(skip)
    check_selectors(
        type(model).__name__, [*(name for name, _ in model.named_modules()), *sites], [*(only or []), *skip]
    )
    for name, site in sites.items():
        if _is_selected(name, site, skip):
            report.skipped[name] = "named in skip"
        elif only is not None and not _is_selected(name, site, only):
            report.skipped[name] = "not named in only"
    if len(report.skipped) == len(sites):
        raise ValueError(f"no layer of {type(model).__name__} is left to merge:\n{report}")
    return {name: site for name, site in sites.items() if name not in report.skipped}, report


def _is_selected(name: str, site: Site, selectors: list[Selector]) -> bool:
    layer = name if site.parameter == "weight" else name.removesuffix(site.parameter).removesuffix(".")
    return any(matches(label, site.module, s) for s in selectors for label in {name, layer})


def _get_plain_name(module: nn.Module) -> str:
    """Return the class name of a layer without the prefix ``Parametrized`` or ``Tuned``."""
    return type(module).__name__.removeprefix("Parametrized").removeprefix("Tuned")


def _refuse_unmergeable(name: str, site: Site, undo: bool) -> None:
    if is_quantized(site.module):
        if not undo:
            raise ValueError(
                f"layer {name!r} has a quantized weight, which would have to be rounded again to include R: keep the "
                "rotation of its inputs, or remove it with merge(model, undo=True)"
            )
    elif len(site.module.parametrizations[site.parameter]) > 1:  # type: ignore[index, arg-type]
        raise ValueError(f"layer {name!r} has another parametrization on top of R·V: remove that one first")


def _merge_layer(site: Site, undo: bool) -> None:
    module, parameter, parametrization = site
    with torch.no_grad():
        parametrization.merged_weight = None
        weight = None if undo else getattr(module, parameter).detach().clone()
    base = unregister(module, parameter)
    weight = base.detach() if weight is None else weight
    module.register_parameter(
        parameter, nn.Parameter(weight, requires_grad=parametrization.original_layer["requires_grad"])
    )
    for key in parametrization.original_layer["order"]:  # a state_dict has the order of registration
        if key in module._parameters:
            module._parameters[key] = module._parameters.pop(key)
