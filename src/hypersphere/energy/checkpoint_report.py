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

DUPLICATE_RADIANS = 1e-3  # nearer neurons count as duplicates
NEAR_RADIANS = 0.1  # nearer neurons count as near-duplicates
DEAD_SHARE = (
    1e-6  # neurons shorter than this share of the longest are dead, because their directions are rounding errors
)
MAX_ROTATED_DIMENSIONS = 1024  # up to here the best common rotation of a layer is computed
Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class LayerReport:
    """The energy (mean over ordered pairs), nearest neighbors and rank of a layer, compared with random directions.

    Attributes:
        name, kind: Name of the tensor, and its kind if the name tells it.
        neurons, dim: Number and dimension of the neurons.
        energy: Energy of the layer.
        random_mean, random_std: Mean and standard deviation of the energy of random directions (:func:`random_energy`).
        separation: The smallest angle between two neurons, in radians.
        nearest: The nearest pairs (i, j, angle).
        near_duplicates: The share of neurons with a neighbor within 0.1 radians.
        effective_rank: exp of the entropy of the squared singular values, as a share of the largest possible rank.
        dead: Neurons shorter than 10⁻⁶ of the longest, which are excluded from all other measures.
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
        """Return plain values for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class LayerChange:
    """The changes of a layer between two checkpoints.

    Attributes:
        name: The tensor.
        angle, largest_angle: Mean and largest angle between the old and the new neurons, in radians.
        length: The mean of ‖w'‖/‖w‖.
        length_spread: The standard deviation of ‖w'‖/‖w‖ over the neurons.
        rotated: The share of the squared change ‖W' − W‖² that a common rotation of all neurons explains. Such a rotation
            does not change the energy. None above 1,024 dimensions.
        energy, near_duplicates, effective_rank: Differences of the measures of :class:`LayerReport`, new minus old.

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
        """Return plain values for JSON."""
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
    """Measure each layer of a state_dict with at least two neurons of at least two dimensions.

    A :class:`Checkpoint` is read one tensor at a time.

    Args:
        state: The state_dict or checkpoint.
        s: Power of the Riesz kernel.
        half_space: Whether to measure the energy of ±ŵ_i.
        pairs: Number of nearest pairs to report.
        left_out: Dictionary that receives the names of matrices that are not layers, with the reason.
        progress: Function that is called with the name of a layer and the share of it that is done.

    Returns:
        One report per layer.

    Raises:
        ValueError: If ``pairs`` < 1.

    >>> report = energy_report({"fc.weight": torch.eye(4), "fc.bias": torch.zeros(4)})
    >>> [(layer.name, layer.neurons, layer.dim, layer.energy) for layer in report]
    [('fc.weight', 4, 4, 0.5)]
    """
    if pairs < 1:
        raise ValueError(f"pairs must be an integer ≥ 1, got {pairs!r}")
    kernel = Riesz(s)
    return [_measure_layer(layer, kernel, half_space, pairs, progress) for layer in _iterate_layers(state, left_out)]


def energy_changes(
    before: Mapping[str, Any] | Checkpoint,
    after: Mapping[str, Any] | Checkpoint,
    *,
    s: float = 2,
    half_space: bool = False,
    progress: Progress | None = None,
) -> list[LayerChange]:
    """Measure the changes of the layers that have the same name and shape in two checkpoints.

    Args:
        before: The old state_dict or checkpoint.
        after: The new state_dict or checkpoint.
        s: Power of the Riesz kernel.
        half_space: Whether to measure the energy of ±ŵ_i.
        progress: Function that is called with the name of a layer and the share of it that is done.

    Returns:
        The changes of each layer.

    >>> rotated = {"w": torch.tensor([[0.0, 1.0], [-1.0, 0.0]])}
    >>> [(c.angle, c.rotated) for c in energy_changes({"w": torch.eye(2)}, rotated)]
    [(1.5707963705062866, 1.0)]
    """
    kernel, changes = Riesz(s), []
    for layer in _iterate_layers(after):
        source = layer.name.partition("[")[0]
        old_layers = _iterate_layers(before, only=source) if source in before else ()
        same = (old for old in old_layers if old.name == layer.name and old.rows.shape == layer.rows.shape)
        changes += [_measure_change(old.rows, layer, kernel, half_space, progress) for old in same]
    return changes


def _iterate_layers(
    state: Mapping[str, Any] | Checkpoint, left_out: dict[str, str] | None = None, only: str | None = None
) -> Iterator[Layer]:
    for layer_or_reason in checkpoint_layers(state, only):
        if isinstance(layer_or_reason, Layer):
            yield layer_or_reason
        elif left_out is not None:
            name, reason = layer_or_reason
            left_out[name] = reason


@torch.no_grad()
def _measure_layer(
    layer: Layer, kernel: Kernel, half_space: bool, pairs: int, progress: Progress | None
) -> LayerReport:
    name, kind, rows = layer
    index, dead = find_live_neurons(rows)
    random = random_energy(len(rows), rows.shape[1], kernel, half_space)
    energy, nearest, near, duplicates, rank = math.nan, [], math.nan, [], math.nan
    if len(index) >= 2:
        whole = rows if len(index) == len(rows) else rows[index]
        share = None if progress is None else (lambda done: progress(name, done))
        measured = measure_pairs(whole, kernel, half_space, pairs=pairs, duplicate=DUPLICATE_RADIANS, progress=share)
        energy, near = measured.energy, _share_near(measured)
        live = index.tolist()
        nearest = [(live[i], live[j], theta) for i, j, theta in measured.pairs]
        duplicates = [(live[i], live[j]) for i, j in measured.duplicates]
        rank = effective_rank(whole)
    separation = nearest[0][2] if nearest else math.nan
    sizes = (len(rows), rows.shape[1])
    return LayerReport(name, kind, *sizes, energy, *random, separation, nearest, near, rank, dead, duplicates)


@torch.no_grad()
def _measure_change(
    old: Tensor, layer: Layer, kernel: Kernel, half_space: bool, progress: Progress | None
) -> LayerChange:
    new = layer.rows.to(old.dtype)
    index = torch.tensor(sorted(set(find_live_neurons(old)[0].tolist()) & set(find_live_neurons(new)[0].tolist())))
    if len(index) < 2:
        nan = math.nan
        return LayerChange(layer.name, nan, nan, nan, nan, None, nan, nan, nan)
    a, b = old[index], new[index]
    theta, ratio = angle(a, b), norm(b) / norm(a)
    measured = []
    for half, rows in enumerate((a, b)):
        share = None if progress is None else (lambda done, half=half: progress(layer.name, (half + done) / 2))
        measured.append(measure_pairs(rows, kernel, half_space, pairs=1, progress=share))
    return LayerChange(
        layer.name,
        theta.mean().item(),
        theta.max().item(),
        ratio.mean().item(),
        ratio.std().item(),
        rotation_share(a, b),
        measured[1].energy - measured[0].energy,
        _share_near(measured[1]) - _share_near(measured[0]),
        effective_rank(b) - effective_rank(a),
    )


def _share_near(measured: PairMeasures) -> float:
    """Return the share of neurons with a neighbor in nearly the same direction."""
    return (measured.nearest > math.cos(NEAR_RADIANS)).double().mean().item()


def find_live_neurons(rows: Float[Tensor, "n d"]) -> tuple[Tensor, list[int]]:
    """Return the indices of live and of dead neurons. Dead ones are not finite, or shorter than 10⁻⁶ of the longest.

    >>> find_live_neurons(torch.tensor([[3.0, 4.0], [0.0, 0.0], [1.0, 0.0]]))
    (tensor([0, 2]), [1])
    """
    lengths = torch.linalg.vector_norm(rows, dim=1).nan_to_num(0, 0, 0)
    is_live = (lengths > DEAD_SHARE * lengths.max()) & rows.isfinite().all(1)
    return is_live.nonzero().flatten(), (~is_live).nonzero().flatten().tolist()


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

    >>> quarter_turn = torch.tensor([[0.0, 1.0], [-1.0, 0.0]])
    >>> rotation_share(torch.eye(2), quarter_turn), rotation_share(torch.eye(2), 2 * torch.eye(2))
    (1.0, 0.0)
    """
    a, b = before.double(), after.double()
    if a.shape[1] > MAX_ROTATED_DIMENSIONS:
        return None
    change = (b - a).square().sum()
    if change <= 1e-24 * a.square().sum():
        return 0.0
    best = a.square().sum() + b.square().sum() - 2 * torch.linalg.svdvals(a.T @ b).sum()
    return min(1.0, max(0.0, 1 - (best / change).item()))
