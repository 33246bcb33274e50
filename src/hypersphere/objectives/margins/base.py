"""What a margin is: two hooks, one on the target's cosine and one on the others'."""

import math
from collections.abc import Callable
from typing import TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ...geometry import arccos, chebyshev

Score: TypeAlias = "Callable[[Tensor], Tensor]"


def identity(cos: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """g(θ) = cos θ, the angular function a margin works on by default."""
    return cos


class Margin(nn.Module):
    r"""ψ on the target, φ on the others. A new margin overrides :meth:`target`, :meth:`others` or both.

    Both hooks take cosines and ``g``, the angular function of the head, and return scores that the head scales. They see
    ‖x‖, so a margin can depend on the quality of a sample, and a margin is a module, so it can learn or keep statistics:

    - ``target`` is called once in each forward pass, before ``others``: running statistics are updated there.
    - ``others`` is called on a part of the classes at a time, and again in the backward pass of a large head, with the
      buffers as they were in the forward pass. It must treat each class by itself and change no state.
    """

    def target(
        self, cos: Float[Tensor, "n"], norms: Float[Tensor, "n"] | None = None, g: Score = identity
    ) -> Float[Tensor, "n"]:
        """ψ(θ) of each sample's own class; without a margin g(θ)."""
        return g(cos)

    def others(
        self,
        cos: Float[Tensor, "n c"],
        target: Float[Tensor, "n 1"] | None = None,
        norms: Float[Tensor, "n 1"] | None = None,
        g: Score = identity,
    ) -> Float[Tensor, "n c"]:
        """φ(θ) of the other classes, given the cosine of the target and ‖x‖ as columns; g(θ) for most margins."""
        return g(cos)


class NoMargin(Margin):
    r"""ψ(θ) = g(θ): the modified softmax of eq. 2.18, W-Softmax (3.10) with another g, S-Softmax with a constant scale.

    >>> NoMargin().target(torch.tensor([1.0, 0.5]))
    tensor([1.0000, 0.5000])
    """


def extended(cos: Float[Tensor, "n"], m1: float, m2: float, g: Score) -> Float[Tensor, "n"]:
    r"""g(u) at u = m₁θ + m₂, continued past π so that it stays continuous and decreasing.

    .. math:: Ψ(u) = g(u − kπ) − k·(g(0) − g(π)), \quad u ∈ [kπ, (k+1)π]

    With g = cos and m₂ = 0 this is (−1)^k cos(mθ) − 2k (eq. 2.6); g(u − kπ) comes from cos(u − kπ) = (−1)^k cos u.
    As Ψ decreases, agrees with g on [0, π] and u ≥ θ, it never exceeds g(θ).

    >>> extended(torch.tensor([1.0, 0.0, -1.0]), 2, 0, identity)
    tensor([ 1., -1., -3.])
    """
    if m1 == 1 and m2 == 0:
        return g(cos)
    k = sum(((cos < bound).to(cos.dtype) for bound in _bounds(m1, m2)), torch.zeros_like(cos))
    wave = chebyshev(cos, m1) if m2 == 0 else torch.cos(m1 * arccos(cos) + m2)
    ends = torch.ones_like(cos)
    # Rounding may leave the wave a little outside [−1, 1]; there it is at an end of a piece and has no slope to lose.
    return g(((1 - 2 * (k % 2)) * wave).clamp(-1, 1)) - k * (g(ends) - g(-ends))


def number(name: str, value: float, least: float, below: float = math.inf) -> float:
    """``value`` if it is a number in [least, below), else an error that names the argument."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value < below:
        top = "" if below == math.inf else f" and below {below:.6g}"
        raise ValueError(f"margin {name} must be a number ≥ {least:g}{top}, got {value!r}")
    return value


def _bounds(m1: float, m2: float) -> list[float]:
    """cos θ where m₁θ + m₂ = kπ, for the k that are reached before θ = π."""
    reached = math.ceil(m1 + m2 / math.pi - 1e-9)
    return [math.cos((k * math.pi - m2) / m1) for k in range(1, reached)]
