"""The energy of classes whose rows are sharded among processes: each process computes the pairs with its own rows."""

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
    chunk: int | None = None,
) -> Float[Tensor, ""]:
    r"""Return Σ_i n_i·Σ_{j≠i} φ(‖ŵ_i − ŵ_j‖²) of the given rows i against all rows j, the same on every process.

    The rows i are brought to every process, which compares them with the rows j that it holds; the sums are sum_shares up.
    What travels are as many rows as are given, forward and backward, and one number. The gradient of each row is exact
    and on the process that holds it. Every process calls this with the same ``rows``, ``counts`` and ``importance``.

    Args:
        weight: a DTensor with ``Shard(0)``, (N, d), or (C, K, d) for K rows of each class.
        rows: numbers of rows, counted over all processes, each once.
        counts: how often each of them counts.
        kernel: φ.
        importance: β of all rows: the energy of the points β_i·ŵ_i (eq. D.10).
        chunk: rows of the Gram matrix formed at a time.
    """
    local, group = get_local_rows(weight), weight.device_mesh.get_group()  # type: ignore[attr-defined]
    per_entry = weight.shape[1] if weight.ndim == 3 else 1
    first, here = get_first_row(weight) * per_entry, len(local)
    met = gather_weight_rows(weight, rows)
    place = rows - first
    own = (place >= 0) & (place < here)
    # A row that is here is compared as itself, so that it is not met by its own copy; the copies of the others follow.
    place = torch.where(own, place, here + torch.arange(len(rows), device=rows.device))
    beta = None if importance is None else torch.cat([importance[first : first + here], importance[rows]])
    points = torch.cat([local, met]).unsqueeze(0)
    sums = pair_sums(points, kernel, importance=beta, rows=place, counts=counts, among=here, chunk=chunk)
    return sum_shares(sums.squeeze(0), group)
