"""The hyperspherical energy of the layers of a checkpoint, beside that of random layers of the same shapes."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from ..geometry import uniform
from .hyperspherical import hyperspherical_energy
from .nearest import nearest_pairs

DUPLICATE = 1e-3  # radians: neurons nearer than this do the same work
DEAD = 1e-6  # of the layer's largest neuron: shorter ones have no effect and no meaningful direction


@dataclass(frozen=True)
class LayerReport:
    """One layer: its energy (mean over ordered pairs), the same for random directions, and its nearest neurons."""

    name: str
    neurons: int
    dim: int
    energy: float
    random_mean: float
    random_std: float
    separation: float
    nearest: list[tuple[int, int, float]]
    dead: list[int]
    duplicates: list[tuple[int, int]]

    @property
    def deviations(self) -> float:
        """How many standard deviations of random layers the energy lies above their mean."""
        return (self.energy - self.random_mean) / self.random_std if self.random_std > 0 else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


def energy_report(
    state: Mapping[str, Any], *, s: float = 2, half_space: bool = False, samples: int = 8, pairs: int = 3, seed: int = 0
) -> list[LayerReport]:
    """Report each floating-point tensor of a state_dict that has at least two neurons of at least two dimensions.

    Dead neurons, shorter than 10⁻⁶ of the longest, are listed and left out of everything else. Duplicates are pairs
    nearer than 10⁻³ radians, at most as many as there are neurons. The energy of a random layer is sampled ``samples`` times.

    >>> report = energy_report({"fc.weight": torch.eye(4), "fc.bias": torch.zeros(4)})
    >>> [(layer.name, layer.neurons, layer.dim, layer.energy) for layer in report]
    [('fc.weight', 4, 4, 0.5)]
    """
    if samples < 2:
        raise ValueError(f"samples must be a number ≥ 2, got {samples!r}")
    generator = torch.Generator().manual_seed(seed)
    options = {"s": s, "half_space": half_space}
    return [_layer(name, rows, options, samples, pairs, generator) for name, rows in _layers(state.items())]


@torch.no_grad()
def _layer(
    name: str, rows: Tensor, options: dict[str, Any], samples: int, pairs: int, generator: torch.Generator
) -> LayerReport:
    lengths = torch.linalg.vector_norm(rows, dim=1)
    alive = lengths > DEAD * lengths.max()
    dead = (~alive).nonzero().flatten().tolist()
    index = alive.nonzero().flatten()
    random = [
        hyperspherical_energy(uniform(len(rows), rows.shape[1], generator=generator), **options).item()
        for _ in range(samples)
    ]
    spread = torch.tensor(random, dtype=torch.float64)
    energy, nearest = float("nan"), []
    if len(index) >= 2:
        energy = hyperspherical_energy(rows[index], **options).item()
        found, angles = nearest_pairs(rows[index], max(pairs, len(index)))
        nearest = [(int(index[i]), int(index[j]), a) for (i, j), a in zip(found.tolist(), angles.tolist(), strict=True)]
    return LayerReport(
        name,
        len(rows),
        rows.shape[1],
        energy,
        spread.mean().item(),
        spread.std().item(),
        nearest[0][2] if nearest else float("nan"),
        nearest[:pairs],
        dead,
        [(i, j) for i, j, a in nearest if a < DUPLICATE],
    )


def _layers(items: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Tensor]]:
    for name, value in items:
        if isinstance(value, Tensor) and value.is_floating_point() and value.ndim >= 2:
            rows = value.flatten(1)
            if len(rows) >= 2 and rows.shape[1] >= 2:
                yield name, rows.to(torch.promote_types(rows.dtype, torch.float32))
