"""Orthogonal fine-tuning of a pretrained model: frozen weights, learned rotations."""

import warnings

import torch
from torch import Tensor, nn

from ...neurons import Selectors, as_selectors, attach_change_report, check_selectors
from ..layer_selection import ClassifierLike
from ..parametrization import register
from .adapter import Adapter
from .freezing import freeze
from .quantized_linear import attach, is_quantized
from .tuning_method import TuningMethod, TuningName
from .tuning_plan import TunedWeight, TuningPlan, select_weights


def finetune(
    model: nn.Module,
    method: TuningName | TuningMethod = "oft",
    *,
    block: int = 32,
    terms: int | None = None,
    eps: float | None = None,
    factors: int | None = None,
    rank: int | None = None,
    alpha: float | None = None,
    lengths: bool | None = None,
    only: Selectors | None = None,
    skip: Selectors = (),
    classifier: ClassifierLike = None,
    train: Selectors = (),
    generator: torch.Generator | None = None,
) -> nn.Module:
    r"""Let every layer of a pretrained model learn a small change of its frozen weight W₀, usually W = W₀Rᵀ, in place.

    The change is initially zero, so the outputs of the model do not change. Everything is frozen except the changes, the
    classifier and the modules that ``train`` selects. Create the optimizer afterwards from the parameters that require
    gradients. :func:`merge` multiplies the rotations into the weights, or removes them with ``undo=True``.
    :func:`save_adapters` stores only the changes. :func:`add_task` and :func:`use_task` manage several changes of one model.

    Supported layers are Linear, Conv1d to Conv3d with any kernel, stride and groups, the Conv1D of transformers, the
    fused or separate projections of ``nn.MultiheadAttention``, and linear layers with 8-bit or 4-bit weights. A plain linear
    layer rotates its inputs if that is cheaper; ``layer.weight`` is the effective weight in any case.

    :func:`~hypersphere.neurons.get_change_report` lists the changed layers and the skipped layers with the reason;
    :func:`plan_finetune` lists them in advance. Matrices that cannot be tuned cause a ``UserWarning`` unless ``skip`` or
    ``train`` selects them.

    Args:
        model: A pretrained network.
        method: ``"oft"``: R block-diagonal by the Cayley transform (Qiu et al., 2023); ``"coft"``: the same with
            ‖R − I‖ ≤ ``eps``; ``"boft"``: ``factors`` butterfly factors (Liu et al., 2024); ``"hra"``: ``rank``
            reflections (Yuan et al., 2024); ``"poet"``: rotations on both sides of W₀ between random permutations
            (Qiu et al., 2025), see :func:`redraw_every`; ``"lora"``: W₀ + (α/r)BA (Hu et al., 2021);
            ``"nora"``: the same with normalized columns of A (Kang et al., 2026); ``"dora"``: the same with learned
            lengths of the neurons (Liu et al., 2024); or a :class:`TuningMethod`.
        block: Size of a block. If it does not divide the size of a layer, the largest smaller divisor is used.
        terms: None for the exact Cayley transform, or an even number of terms of its Neumann series (OFTv2).
        eps: Largest ‖R − I‖ of COFT; None is 6·10⁻⁵, the value of the authors' code.
        factors: Number of butterfly factors of BOFT; None is 2.
        rank: Number of reflections of HRA, or the rank of a low-rank change; None is 8.
        alpha: α of the scale α/r of a low-rank change; None is the rank, so that the scale is 1.
        lengths: Whether OFT, BOFT or HRA also learn a factor for the length of each neuron.
        only: Layers to tune: names or patterns, types, modules or predicates ``(name, module) → bool``, one or several.
            None means all.
        skip: Layers that stay frozen, selected in the same ways.
        classifier: The layer that is trained as usual, by name or as a module; False if there is none. By default it is
            the last margin head, otherwise the last Linear layer unless that is the model.
        train: Further modules that are trained as usual, with all modules inside them, selected in the same ways.
        generator: Random generator for HRA, POET and low-rank changes.

    Returns:
        The model.

    Raises:
        ValueError: If no layer is selected, or if a layer that ``only`` names cannot be tuned (tied, computed or of an
            unknown kind).

    >>> net, x = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 3)), torch.ones(1, 64)
    >>> before = net(x)
    >>> torch.equal(finetune(net, "oft", block=16)(x), before)
    True
    >>> [(name, tuple(p.shape)) for name, p in net.named_parameters() if p.requires_grad][0]
    ('0.parametrizations.weight.0.tasks.default.inputs.raw', (1, 4, 120))
    """
    tuning = as_method(
        method, block=block, terms=terms, eps=eps, factors=factors, rank=rank, alpha=alpha, lengths=lengths
    )
    train = as_selectors(train)
    check_selectors(type(model).__name__, [name for name, _ in model.named_modules()], train)
    plan = select_weights(model, tuning, only, skip, classifier, train)
    report = plan.report
    if not plan.weights:
        raise ValueError(f"{type(model).__name__} has no layer to fine-tune:\n{report}")
    if report.unsupported:
        reasons = "; ".join(f"{name}: {report.skipped[name]}" for name in report.unsupported)
        warnings.warn(
            f"layers frozen without R ({reasons}); name them in skip or train to silence this warning", stacklevel=2
        )
    apply_plan(model, plan, dict.fromkeys(plan.weights, tuning), train, generator)
    return model


def as_method(method: TuningName | TuningMethod, **options: float | bool | None) -> TuningMethod:
    """Return a method from its name and options; a :class:`TuningMethod` takes no further options."""
    options = {key: value for key, value in options.items() if value is not None}
    if isinstance(method, TuningMethod):
        if options.pop("block") != 32 or options:
            raise ValueError(
                "pass block, terms, eps, factors, rank, alpha and lengths to the TuningMethod instead of finetune"
            )
        return method
    return TuningMethod(method, **options)  # type: ignore[arg-type]


def apply_plan(
    model: nn.Module,
    plan: TuningPlan,
    methods: dict[str, TuningMethod],
    train: Selectors,
    generator: torch.Generator | None = None,
) -> None:
    """Put an adapter on every weight of the plan, freeze the rest and attach the report to the model."""
    old_names = {name for name, _ in model.named_parameters()}
    rotations: set[int] = set()
    adapters = [(weight, _create_adapter(weight, methods[name], generator)) for name, weight in plan.weights.items()]
    for tuned, adapter in adapters:  # only now, so that an error above leaves the model unchanged
        rotations.update(id(p) for p in adapter.parameters())
        if is_quantized(tuned.module):
            attach(tuned.module, adapter)
        else:
            weight: Tensor = getattr(tuned.module, tuned.parameter)
            # A parameter, because data-parallel training would broadcast a buffer at every step.
            register(tuned.module, tuned.parameter, nn.Parameter(weight.detach(), requires_grad=False), adapter)
    trained = [model.get_submodule(plan.classifier)] if plan.classifier else []
    freeze(model, rotations, [*as_selectors(train), *trained])
    plan.report.new_parameters = [
        name for name, p in model.named_parameters() if name not in old_names and p.requires_grad
    ]
    attach_change_report(model, plan.report)


def _create_adapter(weight: TunedWeight, tuning: TuningMethod, generator: torch.Generator | None) -> Adapter:
    rows = None
    if not is_quantized(weight.module):
        rows = (weight.like.mT if weight.transposed else weight.like).flatten(1)
    adapter = Adapter(
        tuning, weight.layout, transposed=weight.transposed, rows=rows, like=weight.like, generator=generator
    )
    held = weight.module._parameters.get(weight.parameter)
    adapter.original_layer = {
        "order": list(weight.module._parameters),
        "requires_grad": held is not None and held.requires_grad,
    }
    return adapter
