"""Measures that a run logs in addition to its loss: energy per layer, angles of classes, norms of features, λ."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ..collectives import gather_weight, gather_weight_rows
from ..energy import hyperspherical_energy
from ..evaluation import angular_fisher_score, class_angles
from ..neurons import neuron_layers, neurons
from ..objectives import MarginSoftmax

MAX_ROWS_OF_EXACT_ENERGY = 8192
"""The logged energy of a larger head is estimated from this many rows, because all pairs of a million rows would take hours."""


@torch.no_grad()
def layer_energies(model: nn.Module, s: float = 2.0, half_space: bool = False) -> dict[str, float]:
    """Return the mean energy of the neurons of every layer, and of the classes.

    Layers with one neuron or one dimension are left out. The energy of a head with more than ``MAX_ROWS_OF_EXACT_ENERGY``
    rows is estimated from that many rows, always the same ones. The rows of a head that is sharded among processes are
    gathered, so all processes must call this function.

    Args:
        model: The network.
        s: The exponent of the energy.
        half_space: Whether each neuron counts with its negative.
    """
    rows = {name: neurons(module).detach() for name, module in neuron_layers(model).items()}
    heads = {name: head for name, head in model.named_modules() if isinstance(head, MarginSoftmax)}
    rows |= {name: _some_rows(head.weight.detach()) for name, head in heads.items()}
    return {
        f"energy/{name}": hyperspherical_energy(weight, s, half_space).item()
        for name, weight in rows.items()
        if min(weight.shape) > 1
    }


@torch.no_grad()
def feature_measures(features: Float[Tensor, "n d"], labels: Int[Tensor, "n"]) -> dict[str, float]:
    """Return angles within and between classes (radians), the angular Fisher score, mean and deviation of the features' norms."""
    norms = features.norm(dim=1)
    values = {"feature_norm": norms.mean().item(), "feature_norm_std": norms.std().item()}
    if features.shape[1] > 1 and len(labels.unique()) > 1:
        angles = class_angles(features, labels, margin=False)
        values |= {"intra_angle": angles.intra, "inter_angle": angles.inter, "nearest_angle": angles.nearest}
        values["angular_fisher"] = float(angular_fisher_score(features, labels))
    return values


def annealing_value(model: nn.Module) -> dict[str, float]:
    """Return the current λ of the head, if it has annealing."""
    heads = [module for module in model.modules() if isinstance(module, MarginSoftmax) and module.annealing is not None]
    return {"lambda": heads[0].annealing.value.item()} if heads else {}  # type: ignore[union-attr]


def _some_rows(weight: Tensor) -> Float[Tensor, "rows d"]:
    """Return all rows of a small head and a random part of a large one, gathered from all processes."""
    total = weight.numel() // weight.shape[-1]
    if total <= MAX_ROWS_OF_EXACT_ENERGY:
        return gather_weight(weight)
    chosen = torch.randperm(total, generator=torch.Generator().manual_seed(0))[:MAX_ROWS_OF_EXACT_ENERGY].sort().values
    return gather_weight_rows(weight, chosen.to(weight.device))
