"""Measures of the layers of a checkpoint: energy compared with random layers, neighbors, rank, and changes by training."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ..geometry import angle, norm
from .checkpoint_files import Checkpoint
from .checkpoint_layers import Layer, checkpoint_layers
from .kernels import Kernel, Riesz
from .pair_measures import PairMeasures, measure_pairs
from .reference_energies import random_energy

DUPLICATE = 1e-3  # radians: nearer neurons count as duplicates
NEAR = 0.1  # radians: nearer neurons count as near-duplicates
DEAD = 1e-6  # share of the longest neuron's length; shorter neurons are dead and have no meaningful direction
ROTATION = 1024  # dimensions up to which the best common rotation of a layer is computed
Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class LayerReport:
    """One layer: its energy (mean over ordered pairs), the same for random directions, its neighbors and its rank.

    Attributes:
        name, kind: The tensor, and what it is where its name says so.
        neurons, dim: Its shape, one neuron a row.
        energy, random_mean, random_std: Of the layer, and of random directions (:func:`random_energy`).
        separation: The smallest angle between two neurons, in radians.
        nearest: The nearest pairs (i, j, angle).
        near_duplicates: The share of neurons with a neighbor within 0.1 radians.
        effective_rank: exp of the entropy of the squared singular values, as a share of the largest possible rank.
        dead: Neurons shorter than 10⁻⁶ of the longest, which are left out of everything else.
        duplicates: Pairs nearer than 10⁻³ radians.

    >>> (layer,) = energy_report({"fc.weight": torch.tensor([[1.0, 0.0], [0.0, 2.0], [0.0, 3.0]])})
    >>> layer.name, layer.neurons, layer.dim, layer.duplicates
    ('fc.weight', 3, 2, [(1, 2)])
    """

    name: str
    kind: str
    neurons: int
    dim: int
    energy: float
    random_mean: float
    random_std: float
    separation: float
    nearest: list[tuple[int, int, float]]
    near_duplicates: float
    effective_rank: float
    dead: list[int]
    duplicates: list[tuple[int, int]]

    @property
    def deviations(self) -> float:
        """The energy minus its mean for random layers, in standard deviations; 0 if that is undefined."""
        return (self.energy - self.random_mean) / self.random_std if 0 < self.random_std < math.inf else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class LayerChange:
    """What happened to a layer between two checkpoints.

    Attributes:
        name: The tensor.
        angle, largest_angle: How far its neurons turned, mean and largest, in radians.
        length: The mean of ‖w'‖/‖w‖.
        length_spread: Its standard deviation over the neurons.
        rotated: The share of the squared change ‖W' − W‖² that one rotation of the whole layer explains, which leaves
            the energy unchanged; None above 1,024 dimensions.
        energy, near_duplicates, effective_rank: Of :class:`LayerReport`, after less before.

    >>> (change,) = energy_changes({"w": torch.eye(2)}, {"w": 3 * torch.eye(2)})
    >>> change.angle, change.length, change.energy
    (0.0, 3.0, 0.0)
    """

    name: str
    angle: float
    largest_angle: float
    length: float
    length_spread: float
    rotated: float | None
    energy: float
    near_duplicates: float
    effective_rank: float

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


def energy_report(
    state: Mapping[str, Any] | Checkpoint,
    *,
    s: float = 2,
    half_space: bool = False,
    pairs: int = 3,
    left_out: dict[str, str] | None = None,
    progress: Progress | None = None,
) -> list[LayerReport]:
    """Report each layer of a state_dict with at least two neurons of at least two dimensions.

    ``left_out`` is filled with the names of matrices that are no layers, and why. ``progress`` is called with a layer's
    name and the share of it that is done. A :class:`Checkpoint` is read one tensor at a time.

    >>> report = energy_report({"fc.weight": torch.eye(4), "fc.bias": torch.zeros(4)})
    >>> [(layer.name, layer.neurons, layer.dim, layer.energy) for layer in report]
    [('fc.weight', 4, 4, 0.5)]
    """
    if pairs < 1:
        raise ValueError(f"pairs must be an integer ≥ 1, got {pairs!r}")
    kernel = Riesz(s)
    return [_report(layer, kernel, half_space, pairs, progress) for layer in _layers(state, left_out)]


def energy_changes(
    before: Mapping[str, Any] | Checkpoint,
    after: Mapping[str, Any] | Checkpoint,
    *,
    s: float = 2,
    half_space: bool = False,
    progress: Progress | None = None,
) -> list[LayerChange]:
    """Return what training did to the layers that two checkpoints share, by name and shape.

    ``progress`` is called with a layer's name and the share of it that is done.

    >>> turned = {"w": torch.tensor([[0.0, 1.0], [-1.0, 0.0]])}
    >>> [(c.angle, c.rotated) for c in energy_changes({"w": torch.eye(2)}, turned)]
    [(1.5707963705062866, 1.0)]
    """
    kernel, changes = Riesz(s), []
    for layer in _layers(after):
        source = layer.name.partition("[")[0]
        earlier = _layers(before, only=source) if source in before else ()
        same = (old for old in earlier if old.name == layer.name and old.rows.shape == layer.rows.shape)
        changes += [_change(old.rows, layer, kernel, half_space, progress) for old in same]
    return changes


def _layers(
    state: Mapping[str, Any] | Checkpoint, left_out: dict[str, str] | None = None, only: str | None = None
) -> Iterator[Layer]:
    for found in checkpoint_layers(state, only):
        if isinstance(found, Layer):
            yield found
        elif left_out is not None:
            left_out[found[0]] = found[1]


@torch.no_grad()
def _report(layer: Layer, kernel: Kernel, half_space: bool, pairs: int, progress: Progress | None) -> LayerReport:
    name, kind, rows = layer
    index, dead = find_live_neurons(rows)
    random = random_energy(len(rows), rows.shape[1], kernel, half_space)
    energy, nearest, near, duplicates, rank = math.nan, [], math.nan, [], math.nan
    if len(index) >= 2:
        whole = rows if len(index) == len(rows) else rows[index]
        share = None if progress is None else (lambda done: progress(name, done))
        found = measure_pairs(whole, kernel, half_space, pairs=pairs, duplicate=DUPLICATE, progress=share)
        energy, near = found.energy, _near(found)
        number = index.tolist()
        nearest = [(number[i], number[j], theta) for i, j, theta in found.pairs]
        duplicates = [(number[i], number[j]) for i, j in found.duplicates]
        rank = effective_rank(whole)
    separation = nearest[0][2] if nearest else math.nan
    sizes = (len(rows), rows.shape[1])
    return LayerReport(name, kind, *sizes, energy, *random, separation, nearest, near, rank, dead, duplicates)


@torch.no_grad()
def _change(old: Tensor, layer: Layer, kernel: Kernel, half_space: bool, progress: Progress | None) -> LayerChange:
    new = layer.rows.to(old.dtype)
    index = torch.tensor(sorted(set(find_live_neurons(old)[0].tolist()) & set(find_live_neurons(new)[0].tolist())))
    if len(index) < 2:
        none = math.nan
        return LayerChange(layer.name, none, none, none, none, None, none, none, none)
    a, b = old[index], new[index]
    theta, ratio = angle(a, b), norm(b) / norm(a)
    found = []
    for half, rows in enumerate((a, b)):
        share = None if progress is None else (lambda done, half=half: progress(layer.name, (half + done) / 2))
        found.append(measure_pairs(rows, kernel, half_space, pairs=1, progress=share))
    return LayerChange(
        layer.name,
        theta.mean().item(),
        theta.max().item(),
        ratio.mean().item(),
        ratio.std().item(),
        rotation_share(a, b),
        found[1].energy - found[0].energy,
        _near(found[1]) - _near(found[0]),
        effective_rank(b) - effective_rank(a),
    )


def _near(found: PairMeasures) -> float:
    """Return the share of neurons with a neighbor that does nearly the same work."""
    return (found.nearest > math.cos(NEAR)).double().mean().item()


def find_live_neurons(rows: Float[Tensor, "n d"]) -> tuple[Tensor, list[int]]:
    """Return the neurons that have a direction, and those that have none: not finite, or shorter than 10⁻⁶ of the longest.

    >>> find_live_neurons(torch.tensor([[3.0, 4.0], [0.0, 0.0], [1.0, 0.0]]))
    (tensor([0, 2]), [1])
    """
    lengths = torch.linalg.vector_norm(rows, dim=1).nan_to_num(0, 0, 0)
    good = (lengths > DEAD * lengths.max()) & rows.isfinite().all(1)
    return good.nonzero().flatten(), (~good).nonzero().flatten().tolist()


def effective_rank(rows: Float[Tensor, "n d"]) -> float:
    """Return exp(−Σ p·log p) with p the shares of the squared singular values, divided by min(n, d): 1 if all are equal.

    >>> effective_rank(torch.eye(4))
    1.0
    """
    x = rows.double() / torch.linalg.vector_norm(rows.double())
    gram = x.T @ x if len(x) > x.shape[1] else x @ x.T
    p = torch.linalg.eigvalsh(gram).clamp_min(0)
    p = p / p.sum()
    return min(1.0, torch.special.entr(p).sum().exp().item() / len(p))


def rotation_share(before: Float[Tensor, "n d"], after: Float[Tensor, "n d"]) -> float | None:
    """Return 1 − min_R ‖W' − W·R‖²/‖W' − W‖² over orthogonal R; None in too many dimensions, 0 if nothing changed.

    >>> quarter = torch.tensor([[0.0, 1.0], [-1.0, 0.0]])
    >>> rotation_share(torch.eye(2), quarter), rotation_share(torch.eye(2), 2 * torch.eye(2))
    (1.0, 0.0)
    """
    a, b = before.double(), after.double()
    if a.shape[1] > ROTATION:
        return None
    change = (b - a).square().sum()
    if change <= 1e-24 * a.square().sum():
        return 0.0
    best = a.square().sum() + b.square().sum() - 2 * torch.linalg.svdvals(a.T @ b).sum()
    return min(1.0, max(0.0, 1 - (best / change).item()))
