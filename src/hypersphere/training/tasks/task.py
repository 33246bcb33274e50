"""The interface between a task and the trainer: a module whose forward is a loss, its batches and its evaluation.

Every task logs the energy of its layers and the annealing of its head beside the loss.
"""

import os
import pathlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ..._extras import require
from ...collectives import gather_weight, gather_weight_rows
from ...energy import hyperspherical_energy
from ...evaluation import Evidence, angular_fisher_score, class_angles
from ...files import write_atomically
from ...neurons import neuron_layers, neurons
from ...objectives import MarginSoftmax

Batch = tuple[Tensor, ...]
# The logged energy of a larger head is estimated from this number of rows: all pairs of a million rows would take hours.
MAX_ROWS_OF_EXACT_ENERGY = 8192


class Batches(Protocol):
    """A stream of batches with a position."""

    def __iter__(self) -> Iterator[Batch]: ...

    def state_dict(self) -> dict[str, Any]:
        """Return the position."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Move to a saved position."""


class Task(nn.Module, ABC):
    """All learned parts in one module, so that one DDP wrapper and one ``state_dict`` contain them.

    ``forward(step, *batch)`` returns the loss and its named parts. The trainer calls :meth:`advance` after every step,
    :meth:`evaluate` every ``evaluate_every`` steps, and :meth:`pictures` at the end. ``loader`` yields the batches. The weights
    of ``model`` are the result of the run.

    >>> class Slope(Task):  # your own task: a regression
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.model = nn.Linear(1, 1)
    ...     def forward(self, step, *batch):
    ...         loss = (self.model(batch[0]) - batch[1]).square().mean()
    ...         return loss, {"square": loss}
    ...     def evaluate(self): return {"slope": float(self.model.weight)}
    >>> loss, parts = Slope()(0, torch.ones(4, 1), torch.zeros(4, 1))
    >>> loss.requires_grad, list(parts)
    (True, ['square'])
    """

    model: nn.Module
    loader: Batches
    has_unused_parameters = False
    """Whether a step may leave parameters without a gradient, as with two players that take turns."""
    measures_unseen_classes = False
    """Whether the measured samples are of classes that are not trained on, so validation data are split by class."""

    def __init__(self) -> None:
        super().__init__()
        self.started: dict[str, list[str]] = {}
        self.logged_energy: dict[str, Any] = {}  # s and half_space of the energies in measures(), set by the trainer

    @abstractmethod
    def forward(self, step: int, *batch: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss of a batch, and its parts for the log."""

    @abstractmethod
    def evaluate(self) -> dict[str, float]:
        """Return the metrics. Called without gradients, in evaluation mode, on every process."""

    def advance(self, step: int) -> None:
        """Advance all schedules after step number ``step``; the base class advances those of ``self.regularizers``."""
        for regularizer in getattr(self, "regularizers", ()):
            regularizer.step()

    def measures(self) -> dict[str, float]:
        """Return further values that are logged with every evaluation."""
        return {**compute_layer_energies(self.model, **self.logged_energy), **get_annealing_value(self.model)}

    def pictures(self, folder: pathlib.Path) -> None:
        """Draw pictures into the folder."""

    def evidence(self) -> Evidence | None:
        """Return measured samples with their features for a report page, or None."""
        return None

    def write_embedder(self, folder: pathlib.Path, weights: Mapping[str, Tensor]) -> str | None:
        """Write the embedder from the final ``weights``. Return the reason if that is impossible."""
        return "this task has no features that an embedder could return"

    def summary(self) -> dict[str, Any]:
        """Return what the model card says about the data."""
        return {}

    def compile_model(self) -> None:
        """Compile the slow parts."""
        self.model.compile()

    @property
    def device(self) -> torch.device:
        """The device of the parameters."""
        return next(self.parameters()).device


def sum_losses(
    parts: Mapping[str, Tensor], regularizers: Iterable[nn.Module], labels: Tensor | None = None
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the sum of losses and of the weighted terms of regularizers, and all of them by name.

    Args:
        parts: The losses by name.
        regularizers: Modules with a method ``terms``, which returns terms by name.
        labels: Labels of the batch, for regularizers that use them.
    """
    parts = dict(parts)
    for regularizer in regularizers:
        for name, value in regularizer.terms(labels).items():  # type: ignore[operator]
            parts[name] = parts[name] + value if name in parts else value
    return torch.stack(list(parts.values())).sum(), parts


def draw(
    path: str | os.PathLike[str], plot: Callable[..., Any], *args: Any, projection: str | None = None, **options: Any
) -> None:
    """Save ``plot(*args, ax=…)`` to a file."""
    figure = require("matplotlib.figure").Figure(figsize=(5.0, 4.0), layout="constrained")
    plot(*args, ax=figure.add_subplot(projection=projection), **options)
    write_atomically(path, lambda temporary: figure.savefig(temporary, dpi=120))


@torch.no_grad()
def compute_layer_energies(model: nn.Module, s: float = 2.0, half_space: bool = False) -> dict[str, float]:
    """Return the mean energy of the neurons of every layer, and of the classes.

    Layers with one neuron or one dimension are left out. The energy of a head with more than ``MAX_ROWS_OF_EXACT_ENERGY``
    rows is estimated from a fixed selection of that number of rows. The rows of a sharded head are gathered, so all processes
    must call this function.

    Args:
        model: The network.
        s: The exponent of the energy.
        half_space: Whether each neuron counts with its negative.
    """
    rows = {name: neurons(module).detach() for name, module in neuron_layers(model).items()}
    heads = {name: head for name, head in model.named_modules() if isinstance(head, MarginSoftmax)}
    rows |= {name: _select_rows(head.weight.detach()) for name, head in heads.items()}
    return {
        f"energy/{name}": hyperspherical_energy(weight, s, half_space).item()
        for name, weight in rows.items()
        if min(weight.shape) > 1
    }


@torch.no_grad()
def measure_features(features: Float[Tensor, "n d"], labels: Int[Tensor, "n"]) -> dict[str, float]:
    """Return angles within and between classes in radians, the angular Fisher score, and mean and deviation of the norms."""
    norms = features.norm(dim=1)
    values = {"feature_norm": norms.mean().item(), "feature_norm_std": norms.std().item()}
    if features.shape[1] > 1 and len(labels.unique()) > 1:
        angles = class_angles(features, labels, margin=False)
        values |= {"intra_angle": angles.intra, "inter_angle": angles.inter, "nearest_angle": angles.nearest}
        values["angular_fisher"] = float(angular_fisher_score(features, labels))
    return values


def get_annealing_value(model: nn.Module) -> dict[str, float]:
    """Return the current λ of the head, if it has annealing."""
    heads = [module for module in model.modules() if isinstance(module, MarginSoftmax) and module.annealing is not None]
    return {"lambda": heads[0].annealing.value.item()} if heads else {}  # type: ignore[union-attr]


def _select_rows(weight: Tensor) -> Float[Tensor, "rows d"]:
    """Return all rows of a small head and a random part of a large one, gathered from all processes."""
    total = weight.numel() // weight.shape[-1]
    if total <= MAX_ROWS_OF_EXACT_ENERGY:
        return gather_weight(weight)
    chosen = torch.randperm(total, generator=torch.Generator().manual_seed(0))[:MAX_ROWS_OF_EXACT_ENERGY].sort().values
    return gather_weight_rows(weight, chosen.to(weight.device))
