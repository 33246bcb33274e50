r"""Training with normalized weights (4.4, C.7): weight projection and weighted gradients.

The gradient of ŵᵀx̂ with respect to w is (x̂ − ŵᵀx̂·ŵ)/‖w‖ (eq. 4.17), so it fades as ‖w‖ grows, which it does at every
step that is perpendicular to w. Projection keeps ‖w‖ where it is; weighted gradients take it out of the gradient.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ..geometry.fast_norms import normalize_rows, per_neuron


def project_weights(model: nn.Module, norm: float = 1.0) -> None:
    r"""Set every neuron of every operator to s·ŵ, in place (4.4.1). The outputs do not change.

    ``norm`` is s, 1 in Liu (2020); a larger s gives smaller gradients. Refused where ‖w‖ is part of the output (weighted
    magnitudes, the inner product). Layers that are not operators are left alone.

    >>> from hypersphere.operators import SphereLinear
    >>> layer = SphereLinear(4, 3)
    >>> project_weights(layer, norm=2.0)
    >>> layer.weight.norm(dim=1)
    tensor([2.0000, 2.0000, 2.0000], grad_fn=<LinalgVectorNormBackward0>)
    """
    if not norm > 0:
        raise ValueError(f"norm must be a number > 0, got {norm!r}")
    weights = list(_free_weights(model, "weight projection"))
    with torch.no_grad():
        for weight in weights:
            weight.copy_(norm * normalize_rows(weight)[0])


def project_weights_every(
    optimizer: torch.optim.Optimizer, model: nn.Module, steps: int, norm: float = 1.0
) -> RemovableHandle:
    r"""Call :func:`project_weights` after every ``steps``-th step of the optimizer; ``remove()`` of the handle ends it.

    The steps are counted from now on: after resuming from a checkpoint the next projection is ``steps`` steps away.

    Args:
        optimizer: whose steps are counted.
        model: whose operators are projected.
        steps: between two projections, at least 1.
        norm: s, the length that every neuron gets.

    Returns:
        A handle whose ``remove()`` ends it.

    Raises:
        ValueError: if ``steps`` is below 1, if the model has no operators, if ‖w‖ is part of their output, or if their
            weights are parametrized.

    >>> from hypersphere.operators import SphereLinear
    >>> layer = SphereLinear(4, 3)
    >>> optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    >>> handle = project_weights_every(optimizer, layer, steps=1)
    >>> optimizer.step()
    >>> torch.allclose(layer.weight.norm(dim=1), torch.ones(3))
    True
    """
    if steps < 1:
        raise ValueError(f"steps must be an integer ≥ 1, got {steps!r}")
    list(_free_weights(model, "weight projection"))  # refuse now, not in the middle of training
    taken = 0

    def project(*_: object) -> None:
        nonlocal taken
        taken += 1
        if taken % steps == 0:
            project_weights(model, norm)

    return optimizer.register_step_post_hook(project)


class Handles:
    """Several hooks that end together; also a context manager."""

    def __init__(self, handles: list[RemovableHandle]):
        self.handles = handles

    def remove(self) -> None:
        """Take the hooks off."""
        for handle in self.handles:
            handle.remove()

    def __enter__(self) -> "Handles":
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def weighted_gradients(model: nn.Module) -> Handles:
    r"""Multiply each neuron's gradient by ‖w‖ in the backward pass: Δw = ‖w‖·∂L/∂w (eq. 4.18).

    For every operator of the model from now on, until the handles are removed. Then the gradient is the one at ‖w‖ = 1,
    whatever ‖w‖ is; the angle a step turns still depends on it (C.7). Refused where ‖w‖ is part of the output.

    >>> from hypersphere.operators import SphereLinear
    >>> layer = SphereLinear(4, 3)
    >>> handles = weighted_gradients(layer)
    >>> handles.remove()
    """
    return Handles([_weigh(weight) for weight in _free_weights(model, "weighted gradients")])


def _weigh(weight: Tensor) -> RemovableHandle:
    def hook(grad: Tensor) -> Tensor:
        return (grad * per_neuron(normalize_rows(weight.detach())[1], grad.ndim)).to(grad.dtype)

    return weight.register_hook(hook)


def _free_weights(model: nn.Module, what: str) -> Iterator[Tensor]:
    """List the weights of the model's operators, each once; raise if a length matters or a weight is computed."""
    seen: set[int] = set()
    for name, module in model.named_modules():
        for attribute, weight, magnitude in getattr(module, "decoupled_weights", tuple)():
            label = ".".join(filter(None, (name, attribute)))
            if magnitude.uses_weight_norm:
                kind = f"{type(magnitude).__name__}({magnitude.extra_repr()})"
                raise ValueError(f"{what} needs operators without ‖w‖ in their magnitude, got {kind} at {label!r}")
            if not weight.is_leaf:
                raise ValueError(
                    f"{what} needs weights that are parameters, got one that is computed (parametrized) at {label!r}"
                )
            if id(weight) not in seen:
                seen.add(id(weight))
                yield weight
    if not seen:
        raise ValueError(f"{what} needs a model with operators, got {type(model).__name__} without any")
