"""Orthogonal fine-tuning of a pretrained model: frozen weights, learned rotations."""

import warnings
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from ...neurons import Selector, check_selectors
from ..coverage import ClassifierLike
from ..reparametrization import register
from .adapter import Adapter
from .freezing import freeze
from .int8 import attach, is_quantized
from .tuning_method import TuningMethod, TuningName
from .tuning_plan import TunedPlace, TuningPlan, tuning_plan


def finetune(
    model: nn.Module,
    method: TuningName | TuningMethod = "oft",
    *,
    block: int = 32,
    terms: int | None = None,
    eps: float | None = None,
    factors: int | None = None,
    rank: int | None = None,
    only: Iterable[Selector] | None = None,
    skip: Iterable[Selector] = (),
    classifier: ClassifierLike = None,
    train: Iterable[Selector] = (),
    generator: torch.Generator | None = None,
) -> nn.Module:
    r"""Let every layer of a pretrained model learn W = W₀Rᵀ, w_i = R w⁰_i: W₀ frozen, R orthogonal from the identity on.

    The model is changed in place and returned; at first it computes exactly what it did. Make the optimizer afterwards,
    from ``model.parameters()`` that require gradients: everything is frozen but the rotations, the classifier and what
    ``train`` names. :func:`merge` multiplies the rotations in or, with ``undo=True``, takes them off;
    :func:`save_adapters` stores them alone, :func:`add_task` and :func:`use_task` keep several.

    Layers are Linear, Conv1d to Conv3d with any kernel, stride and groups, the Conv1D of transformers, the fused or
    separate projections of ``nn.MultiheadAttention``, and linear layers with 8-bit weights. A plain linear layer turns
    its inputs where that is cheaper; ``layer.weight`` is the acting weight in any case.

    Args:
        model: changed in place.
        method: ``"oft"``: R block-diagonal by the Cayley transform (Qiu et al., 2023); ``"coft"``: the same with
            ‖R − I‖ ≤ ``eps``; ``"boft"``: ``factors`` butterfly factors (Liu et al., 2024); ``"hra"``: ``rank``
            reflections (Yuan et al., 2024); ``"poet"``: rotations on both sides of W₀ between random permutations
            (Qiu et al., 2025), to be drawn anew by :func:`redraw_every`; or a :class:`TuningMethod`.
        block: size of a block; where it does not divide, the largest divisor below is taken.
        terms: None for the exact Cayley transform, or an even number of terms of its Neumann series (OFTv2).
        eps: of COFT, 6·10⁻⁵ by default.
        factors: of BOFT, 2 by default.
        rank: of HRA, 8 by default.
        only: layers to choose: names, patterns, types, modules or predicates; None for all.
        skip: layers to leave frozen, chosen in the same ways.
        classifier: the layer that is trained as usual, by name or as a module, or False. By default it is the last
            margin head, else the last Linear layer unless that is the model.
        train: further modules that are trained as usual with all that is inside them.
        generator: draws what is random about HRA and POET.

    Returns:
        The model. Raises ``ValueError`` if no layer is left or a layer named in ``only`` cannot be tuned (tied,
        computed, of an unknown kind). Matrices of a kind that nobody asked to leave out and that cannot be tuned cause
        a ``UserWarning``; :func:`tuning_plan` lists every one with the reason.

    >>> net, x = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 3)), torch.ones(1, 64)
    >>> before = net(x)
    >>> torch.equal(finetune(net, "oft", block=16)(x), before)
    True
    >>> [(name, tuple(p.shape)) for name, p in net.named_parameters() if p.requires_grad][0]
    ('0.parametrizations.weight.0.tasks.default.inputs.raw', (1, 4, 120))
    """
    how = as_method(method, block=block, terms=terms, eps=eps, factors=factors, rank=rank)
    train = list(train)
    check_selectors(type(model).__name__, [name for name, _ in model.named_modules()], train)
    plan = tuning_plan(model, how, only=only, skip=skip, classifier=classifier, train=train)
    if not plan.adapted:
        raise ValueError(f"{type(model).__name__} has no layer to fine-tune:\n{plan}")
    if plan.unsupported:
        reasons = "; ".join(f"{name}: {plan.left_out[name]}" for name in plan.unsupported)
        warnings.warn(f"frozen, without R ({reasons}); name them in skip or train to say so", stacklevel=2)
    apply_plan(model, {name: (place, how) for name, place in plan.adapted.items()}, plan, train, generator)
    return model


def as_method(method: TuningName | TuningMethod, **options: float | int | None) -> TuningMethod:
    """A method from its name and options; one that is a :class:`TuningMethod` already takes no more of them."""
    given = {key: value for key, value in options.items() if value is not None}
    if isinstance(method, TuningMethod):
        if given.pop("block") != 32 or given:
            raise ValueError("block, terms, eps, factors and rank must be given to the TuningMethod, not beside it")
        return method
    return TuningMethod(method, **given)  # type: ignore[arg-type]


def apply_plan(
    model: nn.Module,
    places: dict[str, tuple[TunedPlace, TuningMethod]],
    plan: TuningPlan,
    train: Iterable[Selector],
    generator: torch.Generator | None = None,
) -> None:
    """Put an adapter on every place, then freeze the rest."""
    rotations: set[int] = set()
    made = [(place, _adapter(place, how, generator)) for place, how in places.values()]
    for place, own in made:  # only now, so that an error above leaves the model as it was
        rotations.update(id(p) for p in own.parameters())
        if is_quantized(place.module):
            attach(place.module, own)
        else:
            weight: Tensor = getattr(place.module, place.parameter)
            # a parameter rather than a buffer: data-parallel training would send buffers around at every step
            register(place.module, place.parameter, nn.Parameter(weight.detach(), requires_grad=False), own)
    trained = [model.get_submodule(plan.classifier)] if plan.classifier else []
    freeze(model, rotations, [*train, *trained])


def _adapter(place: TunedPlace, how: TuningMethod, generator: torch.Generator | None) -> Adapter:
    own = Adapter(
        how,
        place.shape,
        parts=place.parts,
        groups=place.groups,
        transposed=place.transposed,
        like=place.like,
        generator=generator,
    )
    weight = place.module._parameters.get(place.parameter)
    own.plain = {"order": list(place.module._parameters), "requires_grad": weight is not None and weight.requires_grad}
    return own
