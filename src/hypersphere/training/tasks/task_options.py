"""What every task of classes takes beside what is its own."""

from collections.abc import Sequence

from torch import nn
from typing_extensions import TypedDict

from ...data import Augmentation
from ...data.samplers import Sampler


class TaskOptions(TypedDict, total=False):
    """Options of :class:`~hypersphere.training.tasks.Classification` that other tasks pass on.

    - ``losses``: further objectives of features and labels, each with its weight.
    - ``regularizers``: terms that look at weights.
    - ``batch_size``: of all processes together.
    - ``augment``: changes training batches at random.
    - ``scaling``: makes inputs of samples.
    - ``seed``: of batches and augmentation.
    - ``sampler``: another order of the training samples.
    - ``workers``: threads that read batches ahead of the step.
    - ``project_every``: steps between weight projections of operators; 0 for none.
    - ``weighted_gradients``: multiply the gradients of operators by the norm of the weight.
    """

    losses: Sequence[tuple[float, nn.Module]]
    regularizers: Sequence[nn.Module]
    batch_size: int
    augment: Augmentation | None
    scaling: Augmentation | None
    seed: int
    sampler: Sampler | None
    workers: int
    project_every: int
    weighted_gradients: bool
