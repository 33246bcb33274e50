"""The classes of a head divided among processes: the range of classes of each process, and the communication."""

from typing import Any, Literal, NamedTuple

import torch
import torch.distributed as dist
from jaxtyping import Float, Int, Shaped
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from ...collectives import as_share, gather_parts, gather_rows, sum_and_scatter_rows, sum_shares
from ..engine import GatheredBatch

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
LABELS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


class Bounds(NamedTuple):
    """The range of classes of one process: ``size`` classes from ``first`` on.

    >>> first, size = Bounds(first=4, size=2)
    >>> torch.arange(10)[first : first + size]
    tensor([4, 5])
    """

    first: int
    size: int


class Shards:
    """The processes of a mesh, each with a range of classes; the implementation of ``Processes`` for a head.

    Classes are divided as DTensor's ``Shard(0)`` divides rows: the first processes get ⌈C/P⌉ classes each, the last ones
    may get fewer or none.

    Args:
        mesh: The processes, a mesh of one dimension.
        num_classes: C, the number of all classes.
        average: Whether the gradients of the backbone are averaged over the processes afterwards, as
            ``DistributedDataParallel`` and FSDP2 do. The gradients of the features are then multiplied by P, so that the
            average equals the gradient of one process with all samples.

    On three processes with seven classes:

    >>> mesh = torch.distributed.init_device_mesh("cpu", (3,))  # doctest: +SKIP
    >>> [tuple(Shards(mesh, 7).get_bounds(rank)) for rank in range(3)]  # doctest: +SKIP
    [(0, 3), (3, 3), (6, 1)]
    """

    def __init__(self, mesh: DeviceMesh, num_classes: int, average: bool = True):
        self.mesh, self.num_classes, self.average = mesh, num_classes, average
        self.group = mesh.get_group()
        self.rank, self.processes = dist.get_rank(self.group), dist.get_world_size(self.group)
        self.counts: list[int] = []

    def __deepcopy__(self, memo: dict[int, Any]) -> "Shards":
        """Return self: the copy of a head uses the same processes."""
        return self

    def get_bounds(self, rank: int | None = None) -> Bounds:
        """Return the range of classes of this process, or of process ``rank``."""
        per_process = -(-self.num_classes // self.processes)
        first = min(per_process * (self.rank if rank is None else rank), self.num_classes)
        return Bounds(first, min(per_process, self.num_classes - first))

    def gather(
        self, features: Float[Tensor, "_n d"], labels: Shaped[Tensor, "_m"], weights: Float[Tensor, "_k"] | None = None
    ) -> GatheredBatch:
        """Gather the samples of all processes. Invalid samples of one process raise the error on every process."""
        self.counts = self._check_agreement(features, labels)
        gathered, share = _Gather.apply(features, self)
        labels = self.gather_rows(labels.long().contiguous())  # NCCL has no int16
        return GatheredBatch(gathered, share, labels, weights=None if weights is None else self.gather_rows(weights))

    def __call__(self, tensor: Tensor, how: Literal["max", "sum", "top"]) -> Tensor:
        """Combine the tensors of all processes. The result is the same on every process."""
        if how == "top":
            return torch.cat(gather_parts(tensor, self.group), -1).topk(tensor.shape[-1], -1).values
        total = tensor.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, dist.ReduceOp.MAX if how == "max" else dist.ReduceOp.SUM, group=self.group)
        return total

    def sum_shares(self, share: Tensor) -> Tensor:
        """Sum shares over the processes. The backward pass returns the gradient, which is equal on all processes, unchanged."""
        return sum_shares(share, self.group)

    def as_share(self, replicated: Tensor) -> Tensor:
        """Return the tensor unchanged. The backward pass sums its gradient over the processes."""
        return as_share(replicated, self.group)

    def select_own_losses(self, losses: Float[Tensor, "n"]) -> Float[Tensor, "_n"]:
        """Select the losses of this process's samples. The backward pass gathers the gradients of all samples."""
        return _SelectLocal.apply(losses, self)

    def select_own_rows(self, rows: Shaped[Tensor, "n *d"]) -> Shaped[Tensor, "_n *d"]:
        """Select the rows of this process's samples from those of all processes."""
        start = sum(self.counts[: self.rank])
        return rows[start : start + self.counts[self.rank]]

    def gather_rows(self, x: Shaped[Tensor, "_n *d"]) -> Shaped[Tensor, "n *d"]:
        """Gather the rows of all processes, which may have different numbers of rows."""
        return gather_rows(x, self.group, self.counts)

    def sum_and_scatter_rows(self, x: Float[Tensor, "n *d"]) -> Float[Tensor, "_n *d"]:
        """Sum over the processes, and return this process's rows of the sum."""
        return sum_and_scatter_rows(x, self.counts, self.group)

    def _check_agreement(self, features: Tensor, labels: Tensor) -> list[int]:
        """Check that shapes and dtypes agree on all processes, and return the number of samples of each process."""
        properties = [-1] * 4
        if _is_batch(features, labels):
            properties = [len(features), features.shape[1], DTYPES.index(features.dtype), LABELS.index(labels.dtype)]
        header = torch.tensor(properties, device=self.mesh.device_type)
        headers: Int[Tensor, "p 4"] = torch.stack(gather_parts(header, self.group))
        headers = headers.cpu()
        for rank in range(self.processes):
            if headers[rank, 0] < 0:
                detail = f": {_describe(features)} and {_describe(labels)}"
                raise ValueError(
                    f"features must be floating-point (n, d) and labels n integers, one per feature, but they are not "
                    f"on process {rank}{detail if rank == self.rank else ''}"
                )
        if not bool((headers[:, 1:] == headers[0, 1:]).all()):
            raise ValueError(
                "features and labels must agree in d and dtype over the processes, "
                f"got d = {headers[:, 1].tolist()} and {[str(DTYPES[i]) for i in headers[:, 2].tolist()]}"
            )
        return [int(n) for n in headers[:, 0]]


def _is_batch(features: object, labels: object) -> bool:
    if not isinstance(features, Tensor) or not isinstance(labels, Tensor):
        return False
    shaped = features.ndim == 2 and labels.shape == features.shape[:1]
    return shaped and features.dtype in DTYPES and labels.dtype in LABELS


def _describe(value: object) -> str:
    return f"{value.dtype} {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__


class _Gather(torch.autograd.Function):
    """Gather the rows of all processes twice: as ``features`` and ``share`` of a ``GatheredBatch``.

    Backward: the gradient of ``features`` is the same on every process, so each selects its rows. The gradient of
    ``share`` differs, so it is summed over the processes first.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, shards: Shards) -> tuple[Tensor, Tensor]:
        ctx.shards, ctx.counts = shards, shards.counts
        rows = shards.gather_rows(x.contiguous())
        # An autograd function must not return its input, which `rows` returns on one process.
        rows = rows.clone() if shards.processes == 1 else rows
        return rows, rows.view_as(rows)

    @staticmethod
    def backward(ctx: Any, d_features: Tensor, d_share: Tensor) -> tuple[Tensor, None]:
        shards = ctx.shards
        shards.counts = ctx.counts
        gradient = shards.select_own_rows(d_features) + shards.sum_and_scatter_rows(d_share)
        return gradient * shards.processes if shards.average else gradient, None


class _SelectLocal(torch.autograd.Function):
    """Select the entries of this process's samples. Backward: gather the gradients of all processes."""

    @staticmethod
    def forward(ctx: Any, losses: Tensor, shards: Shards) -> Tensor:
        ctx.shards, ctx.counts = shards, shards.counts
        return shards.select_own_rows(losses).clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        shards = ctx.shards
        shards.counts = ctx.counts
        gathered = shards.gather_rows(gradient.contiguous())
        return gathered / shards.processes if shards.average else gathered, None
