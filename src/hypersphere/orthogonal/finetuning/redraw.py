"""Redrawing of POET: the rotations are multiplied into the weights at regular intervals, and new ones start."""

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from ..parametrization import get_fixed_weight, require_rotated
from .adapter import Adapter


@torch.no_grad()
def redraw(model: nn.Module, generator: torch.Generator | None = None) -> nn.Module:
    """Multiply every rotation of ``method="poet"`` into its W₀, and restart with R = I and a new random permutation.

    The outputs of the model do not change, up to rounding. The parameters remain the same objects, so the optimizer remains
    valid. Its moments belong to the old coordinates; delete them, as :func:`redraw_every` does.

    Args:
        model: The model, changed in place.
        generator: Random generator of the permutations.

    Returns:
        The model.

    Raises:
        ValueError: If no layer is tuned by POET, or if a layer has several tasks, whose common W₀ must not change.

    >>> from hypersphere.orthogonal import finetune
    >>> net, x = finetune(torch.nn.Linear(64, 64), "poet", block=8), torch.randn(2, 64)
    >>> before = net(x)
    >>> torch.allclose(redraw(net)(x), before, atol=1e-5)
    True
    """
    sites = _find_redrawable(model)
    for name, (_, _, adapter) in sites.items():
        if len(adapter.tasks) > 1:
            raise ValueError(
                f"layer {name!r} has several tasks with the same W₀, which a redraw would change for all of them"
            )
    for module, parameter, adapter in sites.values():
        base = get_fixed_weight(module, parameter)
        base.copy_(adapter.effective(base))
        adapter.change.reset(generator)
        adapter.redraws += 1
    return model


def redraw_every(model: nn.Module, optimizer: Optimizer, steps: int = 200, seed: int = 0) -> RemovableHandle:
    """Call :func:`redraw` after every ``steps`` steps of the optimizer, and delete its state of the rotations.

    The model's ``state_dict`` contains the numbers of steps and redraws, and every redraw has a separate random generator.
    A resumed run therefore redraws at the same steps as an uninterrupted one and draws the same permutations.

    Args:
        model: A model tuned by ``finetune(model, "poet")``.
        optimizer: The optimizer that trains it.
        steps: Number of steps between two redraws; 200 is the authors' value.
        seed: Seed of the permutations, combined with the number of the redraw.

    Returns:
        A handle whose ``remove()`` ends the redraws.

    >>> from hypersphere.orthogonal import finetune
    >>> net = finetune(torch.nn.Linear(64, 64), "poet", block=8)
    >>> handle = redraw_every(net, torch.optim.Adam(p for p in net.parameters() if p.requires_grad), steps=100)
    """
    if steps < 1:
        raise ValueError(f"steps must be an integer ≥ 1, got {steps!r}")
    adapters = [adapter for _, _, adapter in _find_redrawable(model).values()]

    def count_step(optimizer: Optimizer, *_: object) -> None:
        for adapter in adapters:
            adapter.steps += 1
        if int(adapters[0].steps) % steps == 0:
            redraw(model, torch.Generator().manual_seed(1_000_003 * seed + int(adapters[0].redraws)))
            for adapter in adapters:
                for parameter in adapter.parameters():
                    optimizer.state.pop(parameter, None)

    return optimizer.register_step_post_hook(count_step)


def _find_redrawable(model: nn.Module) -> dict[str, tuple[nn.Module, str, Adapter]]:
    """Return the layers, parameters and adapters that POET tunes."""
    sites = {
        name: (module, parameter, adapter)
        for name, (module, parameter, adapter) in require_rotated(model).items()
        if isinstance(adapter, Adapter) and adapter.change.redrawable
    }
    if not sites:
        raise ValueError(f'{type(model).__name__} has no layer tuned with method="poet"')
    return sites
