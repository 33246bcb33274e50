r"""Training with normalized weights (4.4, C.7): weight projection and weighted gradients.

The gradient of ŵᵀx̂ with respect to w is (x̂ − ŵᵀx̂·ŵ)/‖w‖ (eq. 4.17), so it decreases as ‖w‖ grows. ‖w‖ grows at every
step, because the gradient is perpendicular to w. Projection keeps ‖w‖ constant; weighted gradients remove it from the
gradient.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ..geometry.fast_norms import normalize_rows, per_neuron


def project_weights(model: nn.Module, norm: float = 1.0) -> None:
    r"""Set every neuron of every operator to s·ŵ, in place (4.4.1). The outputs do not change.

    Layers that are not operators are not changed.

    Args:
        model: A network with operators.
        norm: s, 1 in Liu (2020); a larger s gives smaller gradients.

    Raises:
        ValueError: If ``norm`` is not positive, if the model has no operators, if ‖w‖ is part of their output (weighted
            magnitudes, the inner product), or if their weights are parametrized.

    >>> from hypersphere.operators import SphereLinear
    >>> layer = SphereLinear(4, 3)
    >>> project_weights(layer, norm=2.0)
    >>> layer.weight.norm(dim=1)
    tensor([2.0000, 2.0000, 2.0000], grad_fn=<LinalgVectorNormBackward0>)
    """
    if not norm > 0:
        raise ValueError(f"norm must be a number > 0, got {norm!r}")
    weights = list(_find_free_weights(model, "weight projection"))
    with torch.no_grad():
        for weight in weights:
            weight.copy_(norm * normalize_rows(weight)[0])


def project_weights_every(
    optimizer: torch.optim.Optimizer, model: nn.Module, steps: int, norm: float = 1.0
) -> RemovableHandle:
    r"""Call :func:`project_weights` after every ``steps`` steps of the optimizer.

    Steps are counted from this call, so after resuming from a checkpoint the next projection follows ``steps`` steps later.

    Args:
        optimizer: The optimizer whose steps are counted.
        model: The network whose operators are projected.
        steps: Number of steps between two projections, at least 1.
        norm: s, the length of every neuron after a projection.

    Returns:
        A handle whose ``remove()`` ends the projections.

    Raises:
        ValueError: If ``steps`` is below 1, if the model has no operators, if ‖w‖ is part of their output, or if their
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
    list(_find_free_weights(model, "weight projection"))  # raise errors now, not during training
    step = 0

    def project(*_: object) -> None:
        nonlocal step
        step += 1
        if step % steps == 0:
            project_weights(model, norm)

    return optimizer.register_step_post_hook(project)


class Handles:
    """Hooks that are removed together; also a context manager."""

    def __init__(self, handles: list[RemovableHandle]):
        self.handles = handles

    def remove(self) -> None:
        """Remove the hooks."""
        for handle in self.handles:
            handle.remove()

    def __enter__(self) -> "Handles":
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def weighted_gradients(model: nn.Module) -> Handles:
    r"""Multiply each neuron's gradient by ‖w‖ in the backward pass: Δw = ‖w‖·∂L/∂w (eq. 4.18).

    The gradient is then that at ‖w‖ = 1 for any ‖w‖. The angle by which a step rotates w still depends on ‖w‖ (C.7).

    Args:
        model: A network with operators.

    Returns:
        Handles whose ``remove()`` ends the weighting.

    Raises:
        ValueError: If the model has no operators, if ‖w‖ is part of their output, or if their weights are parametrized.

    >>> from hypersphere.operators import SphereLinear
    >>> layer = SphereLinear(4, 3)
    >>> handles = weighted_gradients(layer)
    >>> handles.remove()
    """
    return Handles([_weight_gradient(weight) for weight in _find_free_weights(model, "weighted gradients")])


def _weight_gradient(weight: Tensor) -> RemovableHandle:
    def hook(grad: Tensor) -> Tensor:
        return (grad * per_neuron(normalize_rows(weight.detach())[1], grad.ndim)).to(grad.dtype)

    return weight.register_hook(hook)


def _find_free_weights(model: nn.Module, method: str) -> Iterator[Tensor]:
    """Yield each weight of the model's operators once; raise if an output depends on ‖w‖ or a weight is computed."""
    seen: set[int] = set()
    for name, module in model.named_modules():
        for attribute, weight, magnitude in getattr(module, "decoupled_weights", tuple)():
            label = ".".join(filter(None, (name, attribute)))
            if magnitude.uses_weight_norm:
                kind = f"{type(magnitude).__name__}({magnitude.extra_repr()})"
                raise ValueError(f"{method} needs operators without ‖w‖ in their magnitude, got {kind} at {label!r}")
            if not weight.is_leaf:
                raise ValueError(
                    f"{method} needs weights that are parameters, got one that is computed (parametrized) at {label!r}"
                )
            if id(weight) not in seen:
                seen.add(id(weight))
                yield weight
    if not seen:
        raise ValueError(f"{method} needs a model with operators, got {type(model).__name__} without any")
