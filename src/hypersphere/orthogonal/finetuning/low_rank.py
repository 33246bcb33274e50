"""Low-rank changes of a frozen weight: LoRA, NoRA and DoRA."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ...geometry import accumulation_dtype, disable_autocast, normalize
from .weight_change import WeightChange, WeightLayout

if TYPE_CHECKING:
    from .tuning_method import TuningMethod


class LowRank(WeightChange):
    r"""W = W₀ + (α/r) B A, where A has r rows and B has r columns (LoRA; Hu et al., arXiv:2106.09685).

    As in the authors' code, A is initialized like the weight of a new Linear layer, and B with zero.
    """

    def __init__(
        self,
        method: "TuningMethod",
        layout: WeightLayout,
        rows: Tensor | None,
        like: Tensor,
        generator: torch.Generator | None = None,
    ):
        super().__init__(method, layout, rows, like, generator)
        assert method.rank is not None
        self.rank = method.rank
        self.scale = (method.rank if method.alpha is None else method.alpha) / method.rank
        parts, m, n = layout.parts, layout.neurons // layout.parts, layout.numbers
        dtype, device = accumulation_dtype(like), like.device
        self.down = nn.Parameter(torch.empty(parts, self.rank, n, dtype=dtype, device=device))
        self.up = nn.Parameter(torch.empty(parts, m, self.rank, dtype=dtype, device=device))
        LowRank.reset(self, generator)  # subclasses reset parameters that do not exist yet

    @classmethod
    def describe(cls, method: "TuningMethod", numbers: int) -> str:
        """Describe the rank."""
        return f"rank {method.rank}"

    @property
    def cost(self) -> float:
        """The number of products per sample."""
        return self.rank * (self.down.shape[-1] + self.up.shape[0] * self.up.shape[1])

    def get_down(self) -> Float[Tensor, "parts r n"]:
        """Return the matrix that is multiplied by B, here A."""
        return self.down

    def forward(self, rows: Float[Tensor, "parts m n"]) -> Float[Tensor, "parts m n"]:
        """Return W₀ + (α/r) B A."""
        return rows + self.scale * (self.up @ self.get_down()).to(rows.dtype)

    def compute_around(self, x: Tensor, base: Callable[[Tensor], Tensor], bias: Tensor | None) -> Tensor:
        """Return the outputs of the frozen layer plus (α/r) B(Ax)."""
        y = base(x)
        with disable_autocast(x.device.type):
            down, up = self.get_down()[0], self.up[0]
            change = (x.to(accumulation_dtype(x, down)) @ down.mT) @ up.mT
            return y + (self.scale * change).to(y.dtype)

    def reset(self, generator: torch.Generator | None = None) -> None:
        """Draw A again and set B to zero."""
        with torch.no_grad():
            bound = 1 / math.sqrt(self.down.shape[-1])
            self.down.uniform_(-bound, bound, generator=generator)
            self.up.zero_()

    def rewind(self, t: float) -> None:
        """Multiply B by t."""
        with torch.no_grad():
            self.up.mul_(t)

    def count(self, freedom: bool) -> int:
        """Count the entries of A and B, or return the dimension r(m + n − r) of the set of matrices of rank r."""
        (parts, m, r), n = self.up.shape, self.down.shape[-1]
        return parts * r * (m + n - r) if freedom else self.up.numel() + self.down.numel()

    def extra_repr(self) -> str:
        """Describe the rank and the scale."""
        return f"rank={self.rank}, scale={self.scale:g}"


class NormalizedLowRank(LowRank):
    r"""W = W₀ + (α/r) B Â, where Â has the columns of A, scaled to unit length (NoRA; Kang et al., arXiv:2608.31036).

    Every input then has the same weight in the product for any A.
    """

    def get_down(self) -> Float[Tensor, "parts r n"]:
        """Return A with columns of unit length."""
        return normalize(self.down, dim=-2)


class Decomposed(LowRank):
    r"""W = m·(W₀ + (α/r) B A)/‖W₀ + (α/r) B A‖, row by row, with learned lengths m (DoRA; Liu et al., arXiv:2402.09353).

    The gradient is that of the whole formula. The authors and peft treat the norm in the denominator as a constant in the
    backward pass, which takes less memory.
    """

    start: Tensor

    def __init__(
        self,
        method: "TuningMethod",
        layout: WeightLayout,
        rows: Tensor | None,
        like: Tensor,
        generator: torch.Generator | None = None,
    ):
        super().__init__(method, layout, rows, like, generator)
        assert rows is not None
        lengths = torch.linalg.vector_norm(rows.detach().to(self.up.dtype), dim=-1, keepdim=True)
        lengths = lengths.unflatten(0, (layout.parts, -1))
        self.register_buffer("start", lengths.clone(), persistent=False)
        self.lengths = nn.Parameter(lengths)

    @classmethod
    def explain_quantized(cls, method: "TuningMethod") -> str | None:
        """Return why a quantized weight cannot be tuned."""
        return "DoRA divides by the lengths of the changed neurons, which a quantized weight does not provide"

    @property
    def cost(self) -> float:
        """Infinity, because the rows are divided by their lengths, so the weight is always formed."""
        return math.inf

    def forward(self, rows: Float[Tensor, "parts m n"]) -> Float[Tensor, "parts m n"]:
        """Return the changed rows with the learned lengths; a zero row stays zero."""
        changed = super().forward(rows)
        norms = torch.linalg.vector_norm(changed, dim=-1, keepdim=True)
        is_zero = norms == 0
        ratio = self.lengths.to(changed.dtype) / torch.where(is_zero, 1, norms)
        return changed * torch.where(is_zero, 1, ratio)

    def reset(self, generator: torch.Generator | None = None) -> None:
        """Draw A again, set B to zero and the lengths to those of the frozen rows."""
        super().reset(generator)
        with torch.no_grad():
            self.lengths.copy_(self.start)

    def rewind(self, t: float) -> None:
        """Multiply B, and the differences of the lengths from those of the frozen rows, by t."""
        super().rewind(t)
        with torch.no_grad():
            self.lengths.copy_(self.start + t * (self.lengths - self.start))

    def count(self, freedom: bool) -> int:
        """Count the entries of A, B and m, or return an upper bound on the dimension of the set of changed weights."""
        return super().count(freedom) + self.lengths.numel()
