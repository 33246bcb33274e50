"""Back to a plain model after training."""

from torch import nn

from .parametrization import find, overparameterized, unregister


def merge(model: nn.Module) -> nn.Module:
    """Multiply R into the neurons: the model is plain again, with the keys, shapes and speed it had, in place.

    The task in use is the one that stays. Weights are new parameters, trainable if they were before, so an optimizer
    has to be made anew. To go on with a new R over the learned neurons (progressive training, F.8),
    call :func:`overparameterize` again.

    >>> from hypersphere.orthogonal import overparameterize
    >>> net = torch.nn.Linear(4, 2)
    >>> list(merge(overparameterize(net)).state_dict())
    ['weight', 'bias']
    """
    layers = dict(model.named_modules())
    for name in overparameterized(model):
        if len(layers[name].parametrizations["weight"]) > 1:  # type: ignore[index, arg-type]
            raise ValueError(f"layer {name!r} has another parametrization on top of R·V: remove that one first")
    for name in overparameterized(model):
        _merge_layer(layers[name])
    return model


def _merge_layer(module: nn.Module) -> None:
    own = find(module)
    assert own is not None
    weight = nn.Parameter(unregister(module), requires_grad=own.plain["requires_grad"])
    module.register_parameter("weight", weight)
    for key in own.plain["order"]:  # the order of a state_dict is the order of registration
        if key in module._parameters:
            module._parameters[key] = module._parameters.pop(key)
