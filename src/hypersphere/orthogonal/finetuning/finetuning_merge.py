"""Merging of several fine-tunings or tasks of one base model by averages in the Cayley algebra (OrthoMerge)."""

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ...neurons import neuron_weights
from ..maps.cayley import cayley
from .adapter_files import get_adapters
from .tuning_plan import TunedWeight, describe_weight
from .weight_change import WeightChange

Tuned = nn.Module | Mapping[str, Tensor]


class FinetuningSplit(NamedTuple):
    """A fine-tuned weight as a rotation of the frozen rows and a residual: W = W₀Rᵀ + E, in float64.

    Attributes:
        rotation: R of each part.
        residual: E, the rows of each part.

    >>> net = torch.nn.Linear(3, 5)
    >>> split = split_finetuning(net, net.state_dict())["weight"]
    >>> torch.allclose(split.rotation[0], torch.eye(3).double()), float(split.residual.abs().max()) < 1e-6
    (True, True)
    """

    rotation: Float[Tensor, "parts n n"]
    residual: Float[Tensor, "parts m n"]


@torch.no_grad()
def split_finetuning(base: nn.Module, tuned: Tuned) -> dict[str, FinetuningSplit]:
    r"""Split any fine-tuning of a model into the rotation of each layer's neurons and a residual.

    R is the rotation that brings the neurons of the base closest to the tuned neurons, the solution of the orthogonal
    Procrustes problem min ‖W₀Rᵀ − W‖ with det R = 1. If there are fewer neurons than numbers, R is the identity on the
    directions that the neurons do not determine. Use it to measure how much of a fine-tuning is a rotation.

    Args:
        base: The model before fine-tuning.
        tuned: The model after fine-tuning, or its ``state_dict``.

    Returns:
        The split of every weight of neurons by parameter name.

    Raises:
        ValueError: If the model has a weight that is computed or quantized, or if names or shapes differ.

    >>> base = torch.nn.Linear(3, 5, bias=False).double()
    >>> r = torch.linalg.matrix_exp(torch.tensor([[0, -0.5, 0], [0.5, 0, 0], [0, 0, 0]]).double())
    >>> split = split_finetuning(base, {"weight": base.weight @ r.T})
    >>> torch.allclose(split["weight"].rotation[0], r)
    True
    """
    weights, before, state = _find_weights(base), base.state_dict(), _get_state(base, tuned)
    return {
        name: _split_weight(_get_rows(before[name], weight), _get_rows(state[name], weight))
        for name, weight in weights.items()
    }


@torch.no_grad()
def merge_finetunings(base: nn.Module, tuned: Sequence[Tuned], *, residual: float = 1.0) -> nn.Module:
    r"""Merge several fine-tunings of the same base into one model (OrthoMerge; Yang et al., 2026).

    Every tuned weight is split by :func:`split_finetuning`. The rotations are averaged in the Cayley algebra,
    A = (1/T)(Σ‖A_i‖/‖ΣA_i‖)ΣA_i with A_i = (R_i − I)(R_i + I)⁻¹. The residuals are averaged entry by entry:
    W = W₀Rᵀ + λ·ΣE_i/T. Biases, norms and embeddings get the mean of their changes. Use it for models that were tuned by any
    method; for tasks of :func:`finetune` use :func:`average_tasks`, which needs no SVD.

    Args:
        base: The model before fine-tuning, which is not changed.
        tuned: Two or more models or their ``state_dict``.
        residual: λ; 0 discards the residuals.

    Returns:
        A new model.

    Raises:
        ValueError: If there are fewer than two fine-tunings, if a weight is computed or quantized, if names or shapes
            differ, or if a weight is rotated by 180°, which the Cayley transform does not reach.

    >>> base = torch.nn.Linear(3, 5)
    >>> again = merge_finetunings(base, [base, base])
    >>> torch.allclose(again.weight, base.weight, atol=1e-6)
    True
    """
    if len(tuned) < 2:
        raise ValueError(f"tuned must have two or more fine-tunings, got {len(tuned)}")
    weights, merged = _find_weights(base), copy.deepcopy(base)
    states = [_get_state(base, model) for model in tuned]
    result = merged.state_dict()
    for name, start in base.state_dict().items():
        if name in weights:
            rows = _get_rows(start, weights[name])
            splits = [_split_weight(rows, _get_rows(state[name], weights[name])) for state in states]
            generators = torch.stack([_find_generator(split.rotation, name) for split in splits])
            r = cayley(average_generators(generators))
            tuned_rows = rows @ r.mT + residual * torch.stack([split.residual for split in splits]).mean(0)
            flat = tuned_rows.flatten(0, 1)
            value = (flat.mT if weights[name].transposed else flat).reshape(start.shape)
        elif start.is_floating_point():
            value = start + torch.stack([state[name].to(start) - start for state in states]).mean(0)
        else:
            continue  # counters keep the values of the base
        result[name].copy_(value)
    return merged


def average_tasks(model: nn.Module, tasks: Iterable[str] | None = None, *, into: str = "average") -> nn.Module:
    r"""Add a task ``into`` with the generators (1/T)(Σ‖A_i‖/‖ΣA_i‖)ΣA_i of T tasks to every layer (OrthoMerge).

    The mean of skew-symmetric A_i in different directions is too short, so it is scaled to the mean of their lengths. R
    must be a single Cayley transform (``"oft"``, ``"coft"``).

    Args:
        model: A model with several tasks, see :func:`add_task` and :func:`load_adapters`.
        tasks: The tasks to average; None for all.
        into: The name of the new task. Activate it by :func:`use_task`.

    Returns:
        The model.

    Raises:
        ValueError: If a layer does not have one of the tasks or has ``into`` already, if there are fewer than two tasks,
            or if R is not a single Cayley transform.

    >>> from hypersphere.orthogonal import add_task, finetune
    >>> net = average_tasks(add_task(finetune(torch.nn.Linear(64, 64), block=8), "b"), into="mean")
    >>> list(net.parametrizations.weight[0].tasks)
    ['default', 'b', 'mean']
    """
    adapters = get_adapters(model)
    chosen = list(next(iter(adapters.values())).tasks) if tasks is None else list(tasks)
    if len(chosen) < 2:
        raise ValueError(f"an average needs two or more tasks, got {', '.join(chosen) or 'none'}")
    for name, adapter in adapters.items():
        if adapter.change.get_generators() is None:
            raise ValueError(
                f"layer {name!r} is tuned by {adapter.method.name!r}, whose R is not a single Cayley transform"
            )
        if missing := [task for task in chosen if task not in adapter.tasks]:
            raise ValueError(f"layer {name!r} has no task {missing[0]!r}; its tasks are {', '.join(adapter.tasks)}")
        if into in adapter.tasks or not into.isidentifier():
            raise ValueError(f"into must be a new name of letters, digits and underscores, got {into!r}")
    with torch.no_grad():
        for adapter in adapters.values():
            raws = torch.stack([_get_raw_generators(adapter.tasks[task]) for task in chosen])
            adapter.add_like(into, "identity", None)
            _get_raw_generators(adapter.tasks[into]).copy_(average_generators(raws))
    return model


def _split_weight(rows: Tensor, tuned: Tensor) -> FinetuningSplit:
    r = torch.stack([_find_rotation(a, b) for a, b in zip(rows, tuned, strict=True)])
    return FinetuningSplit(r, tuned - rows @ r.mT)


def _find_rotation(rows: Float[Tensor, "m n"], tuned: Float[Tensor, "m n"]) -> Float[Tensor, "n n"]:
    """Return the rotation R that minimizes ‖W₀Rᵀ − W‖; if there are several, the one closest to the identity.

    With WᵀW₀ = UΣVᵀ the minimizers are U₁V₁ᵀ + U₂QV₂ᵀ, where U₂ and V₂ belong to Σ = 0 and Q is any orthogonal matrix. The
    one with the largest trace is closest to I; its Q is the orthogonal factor of U₂ᵀV₂. If the determinant is −1, the sign of
    the direction that increases the error least is flipped: one inside Q if Q exists, otherwise that of the smallest
    singular value.
    """
    u, sigma, vh = torch.linalg.svd(tuned.mT @ rows)
    n = len(sigma)
    rank = int((sigma > n * torch.finfo(sigma.dtype).eps * sigma[0]).sum())
    left, _, right = torch.linalg.svd(u[:, rank:].mT @ vh[rank:].mT)
    r = u[:, :rank] @ vh[:rank] + u[:, rank:] @ left @ right @ vh[rank:]
    if torch.linalg.det(r) < 0:
        if rank < n:
            left[:, -1] *= -1
        else:
            u[:, -1] *= -1
        r = u[:, :rank] @ vh[:rank] + u[:, rank:] @ left @ right @ vh[rank:]
    return r


def _find_generator(r: Float[Tensor, "parts n n"], name: str) -> Float[Tensor, "parts n n"]:
    """Return A = (R − I)(R + I)⁻¹, the skew-symmetric matrix whose Cayley transform is R."""
    eye = torch.eye(r.shape[-1], dtype=r.dtype, device=r.device)
    if bool((torch.linalg.svdvals(r + eye)[..., -1] < 1e-6).any()):
        raise ValueError(f"{name!r} is rotated by 180° in some plane, which no Cayley transform represents")
    a = torch.linalg.solve(r + eye, r - eye, left=False)
    return (a - a.mT) / 2


def _find_weights(base: nn.Module) -> dict[str, TunedWeight]:
    """Return the weights of neurons by the names of their parameters."""
    names = {id(p): name for name, p in base.named_parameters()}
    weights = {}
    for label, held in neuron_weights(base)[0].items():
        stored = held.stored()
        if stored is None or id(stored) not in names:
            raise ValueError(f"the weight of {label!r} is computed: merge(model) first")
        weights[names[id(stored)]] = describe_weight(label, held)
    return weights


def _get_state(base: nn.Module, tuned: Tuned) -> Mapping[str, Tensor]:
    state = tuned.state_dict() if isinstance(tuned, nn.Module) else tuned
    for name, value in base.state_dict().items():
        if name not in state or state[name].shape != value.shape:
            tuned_shape = tuple(state[name].shape) if name in state else "no tensor of that name"
            raise ValueError(
                f"{name!r} has shape {tuple(value.shape)} in the base, and the fine-tuning has {tuned_shape}"
            )
    return state


def _get_rows(value: Tensor, weight: TunedWeight) -> Float[Tensor, "parts m n"]:
    rows = (value.mT if weight.transposed else value).flatten(1).double()
    return rows.unflatten(0, (weight.layout.parts, -1))


def average_generators(raws: Float[Tensor, "tasks parts blocks entries"]) -> Float[Tensor, "parts blocks entries"]:
    """Return (1/T)(Σ‖A_i‖/‖ΣA_i‖)ΣA_i of each part; 0 if the sum is 0."""
    total = raws.sum(0)
    length = torch.linalg.vector_norm(total, dim=(-2, -1), keepdim=True)
    lengths = torch.linalg.vector_norm(raws, dim=(-2, -1), keepdim=True).sum(0)
    return torch.where(length > 0, lengths / length.clamp_min(torch.finfo(raws.dtype).tiny), 0) * total / len(raws)


def _get_raw_generators(change: nn.Module) -> Tensor:
    assert isinstance(change, WeightChange)
    generators = change.get_generators()
    assert generators is not None
    return generators
