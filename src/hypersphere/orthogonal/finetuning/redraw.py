"""Redrawing of POET: after some steps the rotations are multiplied in, and new ones start."""

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from ..parametrization import get_fixed_weight, require_rotated
from .adapter import Adapter


@torch.no_grad()
def redraw(model: nn.Module, generator: torch.Generator | None = None) -> nn.Module:
    """Multiply every rotation of ``method="poet"`` into its W₀ and start anew: R = I, with a new random permutation.

    The model computes what it did, up to rounding. The parameters stay the objects they are, so the optimizer stays
    valid; its moments belong to the old coordinates and should be dropped, as :func:`redraw_every` does.

    Args:
        model: the model, changed in place.
        generator: draws the permutations.

    Returns:
        The model.

    Raises:
        ValueError: if no layer is tuned by POET, or if a layer has several tasks, whose common W₀ must not change.

    >>> from hypersphere.orthogonal import finetune
    >>> net, x = finetune(torch.nn.Linear(64, 64), "poet", block=8), torch.randn(2, 64)
    >>> before = net(x)
    >>> torch.allclose(redraw(net)(x), before, atol=1e-5)
    True
    """
    found = _find_redrawable(model)
    for name, (_, _, adapter) in found.items():
        if len(adapter.tasks) > 1:
            raise ValueError(
                f"layer {name!r} has several tasks over one W₀, which a redraw would change for all of them"
            )
    for module, parameter, adapter in found.values():
        base = get_fixed_weight(module, parameter)
        base.copy_(adapter.effective(base))
        adapter.change.reset(generator)
        adapter.redraws += 1
    return model


def redraw_every(model: nn.Module, optimizer: Optimizer, steps: int = 200, seed: int = 0) -> RemovableHandle:
    """Call :func:`redraw` after every ``steps`` steps of the optimizer, and drop its state of the rotations.

    Steps and redraws are counted in the model's ``state_dict``, and every redraw has a generator of its own. So a resumed
    run redraws at the same steps as an uninterrupted one, and draws the same permutations.

    Args:
        model: a model tuned by ``finetune(model, "poet")``.
        optimizer: the optimizer that trains it.
        steps: number of steps between two redraws; 200 is the authors' value.
        seed: seed of the permutations, together with the number of the redraw.

    Returns:
        A handle whose ``remove()`` stops it.

    >>> from hypersphere.orthogonal import finetune
    >>> net = finetune(torch.nn.Linear(64, 64), "poet", block=8)
    >>> handle = redraw_every(net, torch.optim.Adam(p for p in net.parameters() if p.requires_grad), steps=100)
    """
    if steps < 1:
        raise ValueError(f"steps must be an integer ≥ 1, got {steps!r}")
    adapters = [adapter for _, _, adapter in _find_redrawable(model).values()]

    def count_step(stepped: Optimizer, *_: object) -> None:
        for adapter in adapters:
            adapter.steps += 1
        if int(adapters[0].steps) % steps == 0:
            redraw(model, torch.Generator().manual_seed(1_000_003 * seed + int(adapters[0].redraws)))
            for adapter in adapters:
                for parameter in adapter.parameters():
                    stepped.state.pop(parameter, None)

    return optimizer.register_step_post_hook(count_step)


def _find_redrawable(model: nn.Module) -> dict[str, tuple[nn.Module, str, Adapter]]:
    """Return the layers, parameters and adapters that POET tunes."""
    found = {
        name: (module, parameter, adapter)
        for name, (module, parameter, adapter) in require_rotated(model).items()
        if isinstance(adapter, Adapter) and adapter.change.redrawable
    }
    if not found:
        raise ValueError(f'{type(model).__name__} has no layer tuned with method="poet"')
    return found
