"""Rewinding of a fine-tuning: scaling the learned change by a factor chosen on validation data (arXiv:2605.28819)."""

from collections.abc import Callable, Iterable

import torch
from torch import nn

from .adapter_files import get_adapters


def rewind(model: nn.Module, t: float) -> nn.Module:
    """Scale every learned change of the active tasks by ``t``, in place; t = 0 is the pretrained model.

    The generators of Cayley transforms (arXiv:2605.28819), the rotation angles of pairs of reflections, and low-rank changes
    are multiplied by t. Rotations remain orthogonal for every t. Calls multiply: 0.5 twice is 0.25. Other trained parameters,
    such as those of a classifier, do not change.

    Args:
        model: A model tuned by :func:`finetune`.
        t: The factor: 0 restores the pretrained weights, 1 changes nothing.

    Returns:
        The model.

    Raises:
        ValueError: If ``t`` is not in [0, 1], if the model is merged with ``keep=True``, or if no layer is tuned.

    >>> from hypersphere.orthogonal import finetune
    >>> net, x = torch.nn.Linear(64, 64), torch.randn(2, 64)
    >>> before = net(x)
    >>> _ = torch.nn.init.normal_(finetune(net, block=8).parametrizations.weight[0].change.inputs.raw)
    >>> torch.allclose(rewind(net, 0.0)(x), before)
    True
    """
    if not 0 <= t <= 1:
        raise ValueError(f"t must be a number from 0 to 1, got {t!r}")
    adapters = get_adapters(model)
    for name, adapter in adapters.items():
        if adapter.merged_weight is not None:
            raise ValueError(f"layer {name!r} is merged with keep=True: unmerge(model) before it is rewound")
    for adapter in adapters.values():
        adapter.change.rewind(t)
    return model


@torch.no_grad()
def choose_rewind(
    model: nn.Module,
    evaluate: Callable[[nn.Module], float],
    *,
    shares: Iterable[float] = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0),
    tolerance: float = 0.0,
) -> float:
    """Rewind a tuned model to the smallest factor with a nearly optimal value on validation data, and return the factor.

    Use it after fine-tuning if the model must also keep its previous abilities. Either ``evaluate`` measures both, or it
    measures the new task and a ``tolerance`` allows a smaller change.

    Args:
        model: A model tuned by :func:`finetune`, rewound in place.
        evaluate: Function that returns a value of the model; larger is better. Measure on validation data, never on test
            data.
        shares: The factors to try, numbers from 0 to 1.
        tolerance: Largest difference between the best value and that of the chosen factor.

    Returns:
        The smallest factor whose value is within ``tolerance`` of the best.

    Raises:
        ValueError: If there is no factor, one is not in [0, 1], ``tolerance`` is negative, or no layer is tuned.

    >>> from hypersphere.orthogonal import finetune
    >>> net = finetune(torch.nn.Linear(64, 64), block=8)
    >>> generators = net.parametrizations.weight[0].change.inputs.raw
    >>> _ = torch.nn.init.ones_(generators)
    >>> choose_rewind(net, lambda tuned: -abs(float(generators[0, 0, 0]) - 0.4))
    0.4
    """
    candidates = sorted(set(shares))
    if not candidates or not all(0 <= t <= 1 for t in candidates):
        raise ValueError(f"shares must be numbers from 0 to 1, at least one, got {candidates}")
    if not tolerance >= 0:
        raise ValueError(f"tolerance must be a number ≥ 0, got {tolerance!r}")
    changes = [adapter.change for adapter in get_adapters(model).values()]
    learned = [{key: value.clone() for key, value in change.state_dict().items()} for change in changes]

    def rewind_from_learned(t: float) -> None:
        for change, state in zip(changes, learned, strict=True):
            change.load_state_dict(state)
        rewind(model, t)

    values = []
    for t in candidates:
        rewind_from_learned(t)
        values.append(float(evaluate(model)))
    chosen = next(t for t, value in zip(candidates, values, strict=True) if value >= max(values) - tolerance)
    rewind_from_learned(chosen)
    return chosen
