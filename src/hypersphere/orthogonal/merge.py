"""Back to a plain model after training, for good or for the time being."""

import torch
from torch import nn

from .reparametrization import Site, find_all, reparametrized, unregister
from .tuning.freezing import thaw
from .tuning.int8 import is_quantized, release


def merge(model: nn.Module, *, keep: bool = False, undo: bool = False) -> nn.Module:
    """Multiply R into the neurons: the model is plain again, with the keys, shapes and speed it had, in place.

    It ends both :func:`overparameterize` and :func:`finetune`. The task in use is the one that stays. Weights are new
    parameters, trainable if they were before, so an optimizer has to be made anew; what :func:`finetune` froze is
    trainable again. To go on with a new R over the learned neurons (progressive training, F.8), call
    :func:`overparameterize` or :func:`finetune` again.

    Args:
        model: changed in place.
        keep: whether to compute every acting weight once and keep the fixed weight and R beside it: as fast as a plain
            model, with one more copy of the weights; :func:`unmerge` returns to exactly what was before.
        undo: whether to drop R instead, so that every fixed weight returns bit for bit.

    Returns:
        The model. Raises ``ValueError`` if no layer has a rotation, if a weight has another parametrization on top,
        and for a quantized layer, whose weight cannot hold R without being rounded again; ``undo=True`` takes its R off.

    >>> from hypersphere.orthogonal import overparameterize
    >>> net = torch.nn.Linear(4, 2)
    >>> list(merge(overparameterize(net)).state_dict())
    ['weight', 'bias']
    """
    if keep and undo:
        raise ValueError("merge takes keep=True or undo=True, not both")
    sites = reparametrized(model)
    for name, site in sites.items():
        _refuse(name, site, undo)
    if keep:
        for site in sites.values():
            with torch.no_grad():
                site.own.kept = None
                site.own.kept = getattr(site.module, site.parameter).detach().clone()
        return model
    for site in sites.values():
        release(site.module) if is_quantized(site.module) else _merge_layer(site, undo)
    thaw(model)
    return model


def unmerge(model: nn.Module) -> nn.Module:
    """Take back ``merge(model, keep=True)``: the fixed weights and R act again, the same bits as before.

    >>> from hypersphere.orthogonal import overparameterize
    >>> net, x = overparameterize(torch.nn.Linear(4, 2)), torch.randn(3, 4)
    >>> torch.equal(unmerge(merge(net, keep=True))(x), net(x))
    True
    """
    sites = find_all(model)
    if not any(site.own.kept is not None for site in sites.values()):
        raise ValueError(f"{type(model).__name__} is not merged with keep=True, so there is nothing to take back")
    for site in sites.values():
        site.own.kept = None
    return model


def _refuse(name: str, site: Site, undo: bool) -> None:
    if is_quantized(site.module):
        if not undo:
            raise ValueError(
                f"layer {name!r} has a quantized weight, which cannot hold R without being rounded again: keep the "
                "rotation on its inputs, or take it off with merge(model, undo=True)"
            )
    elif len(site.module.parametrizations[site.parameter]) > 1:  # type: ignore[index, arg-type]
        raise ValueError(f"layer {name!r} has another parametrization on top of R·V: remove that one first")


def _merge_layer(site: Site, undo: bool) -> None:
    module, parameter, own = site
    with torch.no_grad():
        own.kept = None
        weight = None if undo else getattr(module, parameter).detach().clone()
    base = unregister(module, parameter)
    weight = base.detach() if weight is None else weight
    module.register_parameter(parameter, nn.Parameter(weight, requires_grad=own.plain["requires_grad"]))
    for key in own.plain["order"]:  # the order of a state_dict is the order of registration
        if key in module._parameters:
            module._parameters[key] = module._parameters.pop(key)
