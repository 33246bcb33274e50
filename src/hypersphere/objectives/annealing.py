"""Annealing of a margin: the weight λ of the margin-free logit."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn


class Annealing(nn.Module):
    r"""λ(t) = max(floor, start·(1 + rate·t)^{−power}); the target's logit is (λ·plain + margin)/(1 + λ)  (2.2.7, A.7).

    The number of steps t is a buffer: it is saved and restored with the head. Only :meth:`step` advances it, which
    ``head.step()`` calls. A large λ gives the plain softmax, λ = 0 the full margin.

    Liu (2020) gives no formula: λ begins "very large" and is gradually reduced. The defaults are those of the released code of
    SphereFace. The code of L-Softmax uses rate 2.5·10⁻⁵, power 35 and floor 0 on MNIST, and power 45 with rates of 10⁻⁵ to
    2·10⁻⁵ on CIFAR.

    >>> annealing = Annealing(start=1000, floor=5)
    >>> annealing.step()
    >>> round(annealing.value.item(), 2)
    892.86
    """

    steps: Tensor

    def __init__(self, start: float = 1000.0, floor: float = 5.0, rate: float = 0.12, power: float = 1.0):
        super().__init__()
        if not (math.isfinite(start) and 0 <= floor <= start):
            raise ValueError(f"annealing needs numbers 0 ≤ floor ≤ start, got start={start!r}, floor={floor!r}")
        if not (0 <= rate < math.inf and 0 <= power < math.inf):
            raise ValueError(f"annealing needs rate ≥ 0 and power ≥ 0, got rate={rate!r}, power={power!r}")
        self.start, self.floor, self.rate, self.power = float(start), float(floor), float(rate), float(power)
        # Store the number of steps and not λ, because module.half() would round λ.
        self.register_buffer("steps", torch.tensor(0, dtype=torch.int64))

    @property
    def value(self) -> Float[Tensor, ""]:
        """λ at the current step."""
        return (self.start * (1 + self.rate * self.steps.to(torch.get_default_dtype())) ** -self.power).clamp_min(
            self.floor
        )

    def step(self) -> None:
        """Advance the schedule by one step. Call once per optimizer step."""
        self.steps += 1

    def extra_repr(self) -> str:
        """Return the schedule."""
        return f"start={self.start:g}, floor={self.floor:g}, rate={self.rate:g}, power={self.power:g}"
