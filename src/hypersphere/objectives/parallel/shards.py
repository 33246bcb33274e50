"""The classes of a head divided among processes: which of them are here, and what travels between the processes."""

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
    """The classes of one process: ``first`` and as many as ``size``.

    >>> first, size = Bounds(first=4, size=2)
    >>> torch.arange(10)[first : first + size]
    tensor([4, 5])
    """

    first: int
    size: int


class Shards:
    """The processes of a mesh, each with an equal run of the classes; the last ones may have fewer, or none.

    It is the :class:`~hypersphere.objectives.engine.Processes` of a head. Classes are divided as DTensor's ``Shard(0)``
    divides rows: ⌈C/P⌉ for each process as long as there are any.

    Args:
        mesh: The processes, in one dimension.
        num_classes: C.
        average: Whether gradients of what made the features are averaged over the processes afterwards, as
            ``DistributedDataParallel`` and FSDP2 do. The gradients of the features are then P times those of the loss,
            so that the average is that of one process with all samples.

    On three processes with seven classes:

    >>> mesh = torch.distributed.init_device_mesh("cpu", (3,))  # doctest: +SKIP
    >>> [tuple(Shards(mesh, 7).bounds(rank)) for rank in range(3)]  # doctest: +SKIP
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

    def bounds(self, rank: int | None = None) -> Bounds:
        """Return the range of classes of this process, or of another one."""
        each = -(-self.num_classes // self.processes)
        first = min(each * (self.rank if rank is None else rank), self.num_classes)
        return Bounds(first, min(each, self.num_classes - first))

    def gather(
        self, features: Float[Tensor, "_n d"], labels: Shaped[Tensor, "_m"], weights: Float[Tensor, "_k"] | None = None
    ) -> GatheredBatch:
        """Return the samples of all processes; an error in the samples of one process is raised on every one."""
        self.counts = self._check_agreement(features, labels)
        whole, share = _Gather.apply(features, self)
        labels = self.rows(labels.long().contiguous())  # NCCL has no int16
        return GatheredBatch(whole, share, labels, weights=None if weights is None else self.rows(weights))

    def __call__(self, tensor: Tensor, how: Literal["max", "sum", "top"]) -> Tensor:
        """Combine the tensors of all processes; the result is the same on each."""
        if how == "top":
            return torch.cat(gather_parts(tensor, self.group), -1).topk(tensor.shape[-1], -1).values
        total = tensor.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, dist.ReduceOp.MAX if how == "max" else dist.ReduceOp.SUM, group=self.group)
        return total

    def add(self, share: Tensor) -> Tensor:
        """Sum over the processes. The gradient, which is the same on each, passes unchanged."""
        return sum_shares(share, self.group)

    def enter(self, replicated: Tensor) -> Tensor:
        """Return the same tensor; its gradients are summed over the processes."""
        return as_share(replicated, self.group)

    def own(self, losses: Float[Tensor, "n"]) -> Float[Tensor, "_n"]:
        """Return the samples of this process; the backward pass gathers the gradients of all samples."""
        return _Own.apply(losses, self)

    def mine(self, rows: Shaped[Tensor, "n *d"]) -> Shaped[Tensor, "_n *d"]:
        """Select the rows of this process's samples from those of all processes."""
        start = sum(self.counts[: self.rank])
        return rows[start : start + self.counts[self.rank]]

    def rows(self, x: Shaped[Tensor, "_n *d"]) -> Shaped[Tensor, "n *d"]:
        """Return the rows of all processes, as many as each has."""
        return gather_rows(x, self.group, self.counts)

    def scatter_sum(self, x: Float[Tensor, "n *d"]) -> Float[Tensor, "_n *d"]:
        """Return this process's rows of Σ over the processes."""
        return sum_and_scatter_rows(x, self.counts, self.group)

    def _check_agreement(self, features: Tensor, labels: Tensor) -> list[int]:
        """Return the number of samples of each process, after checking that shapes and dtypes agree on all processes."""
        kinds = [-1] * 4
        if _is_batch(features, labels):
            kinds = [len(features), features.shape[1], DTYPES.index(features.dtype), LABELS.index(labels.dtype)]
        header = torch.tensor(kinds, device=self.mesh.device_type)
        found: Int[Tensor, "p 4"] = torch.stack(gather_parts(header, self.group))
        found = found.cpu()
        for rank in range(self.processes):
            if found[rank, 0] < 0:
                mine = f": {_describe(features)} and {_describe(labels)}"
                raise ValueError(
                    f"features must be floating-point (n, d) and labels n integers, one per feature, which they are not "
                    f"on process {rank}{mine if rank == self.rank else ''}"
                )
        if not bool((found[:, 1:] == found[0, 1:]).all()):
            raise ValueError(
                "features and labels must agree in d and dtype over the processes, "
                f"got d = {found[:, 1].tolist()} and {[str(DTYPES[i]) for i in found[:, 2].tolist()]}"
            )
        return [int(n) for n in found[:, 0]]


def _is_batch(features: object, labels: object) -> bool:
    if not isinstance(features, Tensor) or not isinstance(labels, Tensor):
        return False
    shaped = features.ndim == 2 and labels.shape == features.shape[:1]
    return shaped and features.dtype in DTYPES and labels.dtype in LABELS


def _describe(given: object) -> str:
    return f"{given.dtype} {tuple(given.shape)}" if isinstance(given, Tensor) else type(given).__name__


class _Gather(torch.autograd.Function):
    """All rows, twice: for what is replicated and for shares; see :class:`~hypersphere.objectives.engine.GatheredBatch`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, shards: Shards) -> tuple[Tensor, Tensor]:
        ctx.shards, ctx.counts = shards, shards.counts
        rows = shards.rows(x.contiguous())
        # An output of a function must not be its input, which it is on one process.
        rows = rows.clone() if shards.processes == 1 else rows
        return rows, rows.view_as(rows)

    @staticmethod
    def backward(ctx: Any, whole: Tensor, share: Tensor) -> tuple[Tensor, None]:
        shards = ctx.shards
        shards.counts = ctx.counts
        gradient = shards.mine(whole) + shards.scatter_sum(share)
        return gradient * shards.processes if shards.average else gradient, None


class _Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, losses: Tensor, shards: Shards) -> Tensor:
        ctx.shards, ctx.counts = shards, shards.counts
        return shards.mine(losses).clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        shards = ctx.shards
        shards.counts = ctx.counts
        gather_samples = shards.rows(gradient.contiguous())
        return gather_samples / shards.processes if shards.average else gather_samples, None
