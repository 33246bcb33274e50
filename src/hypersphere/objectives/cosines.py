"""One chunk of a large head whose other classes are plain cosines: closed forms, in place."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ..geometry import norm
from .scores import MIN_NORM


class CosineParts:
    r"""z = a·w/‖w‖ + b (or a·w + b), the largest over sub-centres, and its gradient, for features a = scale·x̂.

    .. math:: ∂z/∂a = w/‖w‖,\quad ∂z/∂w = a/‖w‖ − (z − b)·w/‖w‖²

    so with D = ∂L/∂z the chunk's gradients are two matrix products of D/‖w‖ and one scaled copy of w. ``keep`` holds on to the
    logits between the passes instead of computing them again.
    """

    def __init__(
        self, sub_centers: int, normalized: bool, matmul_dtype: torch.dtype | None, keep: bool, bounded: bool = True
    ):
        self.sub_centers, self.normalized, self.matmul_dtype = sub_centers, normalized, matmul_dtype
        self.min_norm = MIN_NORM if bounded else 0.0
        self.kept: dict[int, tuple[Tensor, Tensor | None]] | None = {} if keep else None
        self.inverse: Tensor | None = None
        self.nearest: Tensor | None = None

    def open(self, weight: Tensor, dtype: torch.dtype) -> None:
        """Room for the inverse norms, which the chunks of the forward pass fill in."""
        self.inverse = (
            weight.new_empty(len(weight) // self.sub_centers, self.sub_centers, dtype=dtype)
            if self.normalized
            else None
        )

    def logits(self, part: slice, weight: Tensor, bias: Tensor | None, a: Tensor) -> Tensor:
        """z of the classes in ``part``, a new tensor."""
        if self.inverse is not None:
            lengths = _lengths(self._rows(weight, part).to(a.dtype))
            self.inverse[part] = torch.where(lengths > 0, 1 / lengths, 0)
        return self._logits(part, weight, bias, a)

    def keep(self, part: slice, z: Tensor) -> None:
        """Hold on to the logits just made, if they are few."""
        if self.kept is not None:
            self.kept[part.start] = z, self.nearest

    def logits_again(self, part: slice, weight: Tensor, bias: Tensor | None, a: Tensor) -> Tensor:
        """The same with the norms already known, or what was kept."""
        if self.kept is None:
            return self._logits(part, weight, bias, a)
        z, self.nearest = self.kept[part.start]
        return z

    def open_backward(self, weight: Tensor, bias: Tensor | None, needs: Sequence[bool], a: Tensor) -> None:
        """Room for the gradients that are wanted."""
        self.d_weight = torch.empty_like(weight) if needs[0] else None
        self.d_bias = torch.empty_like(bias) if bias is not None and needs[1] else None
        self.d_a = torch.zeros_like(a) if needs[2] else None

    def pull(self, part: slice, z: Tensor, d: Tensor, weight: Tensor, bias: Tensor | None, a: Tensor) -> None:
        """Add what this part's ∂L/∂z means for a, w and b; ``d`` is used up."""
        if self.d_bias is not None:
            torch.sum(d, 0, out=self.d_bias[part])
        for k in range(self.sub_centers):
            rows = self._rows(weight, part)[:, k].to(a.dtype)
            mine = d if self.nearest is None else d * (self.nearest == k)
            if self.d_weight is not None:
                along = (mine * (z if bias is None else z - bias[part])).sum(0)
                self._pull_rows(self._rows(self.d_weight, part)[:, k], mine, along, rows, a, part, k)
            if self.d_a is not None:
                self.d_a += self._matmul(mine if self.inverse is None else mine.mul_(self.inverse[part, k]), rows)

    def close(self) -> tuple[Tensor | None, ...]:
        """The gradients of weight, bias and a; the buffers are given up."""
        gradients = (self.d_weight, self.d_bias, self.d_a)
        self.d_weight = self.d_bias = self.d_a = self.nearest = None
        return gradients

    def _logits(self, part: slice, weight: Tensor, bias: Tensor | None, a: Tensor) -> Tensor:
        """z, and in ``nearest`` which sub-centre it came from."""
        z = self._product(a, part, weight, 0)
        self.nearest = torch.zeros(z.shape, dtype=torch.uint8, device=z.device) if self.sub_centers > 1 else None
        for k in range(1, self.sub_centers):
            other = self._product(a, part, weight, k)
            assert self.nearest is not None
            self.nearest.masked_fill_(other > z, k)
            torch.maximum(z, other, out=z)
        return z if bias is None else z.add_(bias[part])

    def _pull_rows(self, out: Tensor, d: Tensor, along: Tensor, rows: Tensor, a: Tensor, part: slice, k: int) -> None:
        """(Dᵀa − (Dᵀz)·w/‖w‖²)/‖w‖ into ``out``, each factor of 1/‖w‖ by itself, as their square may leave the range of the dtype."""
        direct = out.dtype == a.dtype and self.matmul_dtype is None
        result = torch.mm(d.T, a, out=out) if direct else self._matmul(d.T, a)
        if self.inverse is not None:
            inverse = self.inverse[part, k]
            # As normalize(w, min_norm=…): the gradient of a shorter row is that of one of this length.
            bounded = inverse * (1 / (self.min_norm * inverse)).clamp_max(1)
            result.addcmul_(rows, along.mul_(inverse).neg_().unsqueeze(-1)).mul_(bounded.unsqueeze(-1))
        if not direct:
            out.copy_(result)

    def _product(self, a: Tensor, part: slice, weight: Tensor, k: int) -> Tensor:
        z = self._matmul(a, self._rows(weight, part)[:, k].to(a.dtype).T)
        return z if self.inverse is None else z.mul_(self.inverse[part, k])

    def _matmul(self, a: Tensor, b: Tensor) -> Tensor:
        return a @ b if self.matmul_dtype is None else (a.to(self.matmul_dtype) @ b.to(self.matmul_dtype)).to(a.dtype)

    def _rows(self, weight: Tensor, part: slice) -> Tensor:
        return weight.unflatten(0, (-1, self.sub_centers))[part]


def _lengths(rows: Tensor) -> Tensor:
    """‖w‖; rows whose squares leave the range of the dtype are rare, and only they cost the rescaling that :func:`norm` does."""
    lengths = torch.linalg.vector_norm(rows, dim=-1)
    limits = torch.finfo(lengths.dtype)
    low, high = 1e4 * limits.tiny**0.5, 1e-4 * limits.max**0.5
    return lengths if bool(((lengths > low) & (lengths < high)).all()) else norm(rows)
