"""The energy of classes whose rows are sharded among processes. Each process computes the pairs with its own rows."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..collectives import gather_weight_rows, get_first_row, get_local_rows, sum_shares
from .kernels import Kernel
from .pair_sums import pair_sums


def sharded_energy(
    weight: Tensor,
    rows: Int[Tensor, " rows"],
    counts: Float[Tensor, " rows"],
    kernel: Kernel,
    *,
    importance: Float[Tensor, " classes"] | None = None,
) -> Float[Tensor, ""]:
    r"""Return Σ_i n_i·Σ_{j≠i} φ(‖ŵ_i − ŵ_j‖²) over the given rows i and all rows j, the same value on every process.

    Every process gathers the rows i and compares them with its local rows j. The partial sums are then added over all
    processes. Communicates ``len(rows)`` rows in each direction and one scalar. Each process receives the exact gradient
    of its local rows. Every process must pass the same ``rows``, ``counts`` and ``importance``.

    Args:
        weight: A DTensor with ``Shard(0)``: (N, d), or (C, K, d) with K rows per class.
        rows: Global row indices i, without repetition.
        counts: n_i, the weight of each row.
        kernel: The kernel φ.
        importance: β of all rows, for the energy of the points β_i·ŵ_i (eq. D.10).
    """
    local, group = get_local_rows(weight), weight.device_mesh.get_group()  # type: ignore[attr-defined]
    rows_per_class = weight.shape[1] if weight.ndim == 3 else 1
    first, local_rows = get_first_row(weight) * rows_per_class, len(local)
    gathered = gather_weight_rows(weight, rows)
    index = rows - first
    is_local = (index >= 0) & (index < local_rows)
    # Use the local row where this process owns it, so that a row is never paired with its own copy. Copies of remote
    # rows are appended after the local rows.
    index = torch.where(is_local, index, local_rows + torch.arange(len(rows), device=rows.device))
    beta = None if importance is None else torch.cat([importance[first : first + local_rows], importance[rows]])
    points = torch.cat([local, gathered]).unsqueeze(0)
    sums = pair_sums(points, kernel, importance=beta, rows=index, counts=counts, columns=local_rows)
    return sum_shares(sums.squeeze(0), group)
