"""What a margin is: two hooks, one on the target's cosine and one on the others'."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ...angular import Cosine


@runtime_checkable
class AngularScore(Protocol):
    """The angular function g of a head as a hook sees it: an :class:`~hypersphere.angular.Angular` of some classes."""

    def __call__(self, cos: Tensor) -> Tensor:
        """g(θ) from cos θ."""

    def at(self, theta: Tensor) -> Tensor:
        """g(θ) from θ."""

    def span(self, like: Tensor) -> float | Tensor:
        """g(0) − g(π)."""

    def with_slope(self, cos: Tensor) -> tuple[Tensor, Tensor] | None:
        """g(θ) and ∂g/∂cos θ without a graph; None where the derivative is left to autograd."""


COSINE: AngularScore = Cosine()


class Context(NamedTuple):
    """What a hook may look at besides the cosines it is given; a margin that is called by itself sees only g = cos.

    :meth:`Margin.target` gets one entry per sample, :meth:`Margin.others` the same as columns (n, 1).

    Attributes:
        g: The angular function of the classes at hand.
        norms: ‖x‖ of the samples, with its gradient.
        labels: The class of each sample, counted over all classes, whichever part of them is at hand.
        ignored: Which samples do not count and must not enter a statistic; None for none.
        target: cos θ of each sample's own class, known before any other class is looked at; only in ``others``.
        hardest: The k-th largest cosine among the other classes, for a margin with ``hardest = k``; only in ``others``.
        noise: For each strength that draws, one number of N(0, 1) per sample, the same in every hook, block and process
            of a forward pass and in its backward pass; None where nothing is drawn.

    >>> linear = Context(g=hs.angular.Linear())
    >>> hs.objectives.margins.AdditiveCosine(0.25).target(torch.tensor([1.0, 0.0]), linear)
    tensor([ 0.7500, -0.2500])
    """

    g: AngularScore = COSINE
    norms: Tensor | None = None
    labels: Tensor | None = None
    ignored: Tensor | None = None
    target: Tensor | None = None
    hardest: Tensor | None = None
    noise: "Mapping[Strength, Tensor] | None" = None


ALONE = Context()
Sloped: TypeAlias = tuple[Tensor, Tensor]
"""Scores and their derivatives by the cosines, of the same shape, without a graph."""


class Margin(nn.Module):
    r"""ψ on the target, φ on the others. A new margin overrides :meth:`target`, :meth:`others` or both.

    Both hooks take cosines and a :class:`Context` and return scores that the head scales. A margin is a module, so it
    can learn parameters and keep statistics:

    - ``target`` is called once in each forward pass, on the whole batch and before ``others``: running statistics are
      updated there, when ``self.training``.
    - ``others`` is called on a block of classes at a time, on whichever process holds their weights, and again in the
      backward pass of a large head, with the buffers as they were in the forward pass. It must treat each class by
      itself and change no state. What it may know of the classes outside of its block is in the context.
    - ``target_with_slope`` and ``others_with_slope`` are the same with the derivative by the cosine, where a margin
      knows it in closed form: heads then need no graph of the hooks.
    - ``penalty`` is a term of each sample's loss that looks at the context alone, such as a price on ‖x‖.

    ``hardest`` is the k for which ``others`` wants the k-th largest cosine among the other classes in the context; 0 for
    none, as finding it costs one more pass over the classes.

    >>> class Lowered(Margin):
    ...     def target(self, cos, context=ALONE):
    ...         return context.g(cos) - 0.5
    >>> head = hs.objectives.MarginSoftmax(2, 2, margin=Lowered())
    >>> head.margin.target(torch.tensor([1.0, 0.0]))
    tensor([ 0.5000, -0.5000])
    """

    hardest: int = 0

    def __init_subclass__(cls, **options: Any):
        """A slope belongs to the hook that it was written for: a margin that changes a hook alone does not inherit it."""
        super().__init_subclass__(**options)
        for hook in ("target", "others"):
            if hook in cls.__dict__ and f"{hook}_with_slope" not in cls.__dict__:
                setattr(cls, f"{hook}_with_slope", unknown_slope)

    def target(self, cos: Float[Tensor, "*n"], context: Context = ALONE) -> Float[Tensor, "*n"]:
        """ψ(θ) of each sample's own class; without a margin g(θ)."""
        return context.g(cos)

    def others(self, cos: Float[Tensor, "n c"], context: Context = ALONE) -> Float[Tensor, "n c"]:
        """φ(θ) of the other classes; g(θ) for most margins."""
        return context.g(cos)

    def target_with_slope(self, cos: Float[Tensor, "*n"], context: Context = ALONE) -> Sloped | None:
        """ψ(θ) and ∂ψ/∂cos θ, without a graph; None leaves the derivative to autograd.

        A head calls it in place of :meth:`target`, so it moves the same statistics, but only if it does not return
        None. It has no meaning where ψ depends on anything with a gradient besides the cosine: a learned parameter, ‖x‖.
        A margin that overrides ``target`` has no slope unless it overrides this as well.
        """
        return sloped(context.g, cos)

    def others_with_slope(self, cos: Float[Tensor, "n c"], context: Context = ALONE) -> Sloped | None:
        """φ(θ) and ∂φ/∂cos θ, without a graph, as :meth:`target_with_slope`."""
        return sloped(context.g, cos)

    def penalty(self, context: Context) -> Float[Tensor, "*n"] | None:
        """What is added to the loss of each sample; None, for most margins, is nothing."""
        return None

    def step(self) -> None:
        """One training step has been made: every :class:`Strength` in this margin moves on."""
        for module in self.modules():
            if isinstance(module, Strength):
                module.step()

    def warning(self) -> str | None:
        """Returns what is unusual about the margin's numbers, in words, or None; a head shows it when it is made."""
        return None


class NoMargin(Margin):
    r"""ψ(θ) = g(θ): the modified softmax of eq. 2.18, W-Softmax (3.10) with another g, S-Softmax with a constant scale.

    >>> NoMargin().target(torch.tensor([1.0, 0.5]))
    tensor([1.0000, 0.5000])
    """


class Strength(nn.Module, ABC):
    """A margin's number m that is not one constant: by class, drawn per sample, or following a schedule.

    A margin that takes ``m: float | Strength`` calls it in its hooks. ``least`` and ``most`` bound what it returns, so
    that the margin can refuse it when it is made; ``num_classes`` is how many classes it knows, or None for any.

    >>> class ByNorm(Strength):
    ...     least, most = 0.0, 0.5
    ...     def forward(self, context):
    ...         return 0.5 * context.norms.detach().clamp(max=1)
    >>> margin = hs.objectives.margins.AdditiveCosine(ByNorm())
    >>> margin.target(torch.ones(2), Context(norms=torch.tensor([0.5, 2.0])))
    tensor([0.7500, 0.5000])
    """

    least: float
    most: float
    num_classes: int | None = None
    draws: bool = False
    """Whether the numbers are drawn from torch's random state: a head then draws once for each sample and forward pass,
    the same on processes that share a batch, and the strength finds what was drawn for it in ``context.noise``."""
    constant: bool = False
    """Whether no gradient flows through m: it has no parameters and looks at ‖x‖ without its gradient, if at all."""

    @abstractmethod
    def forward(self, context: Context) -> Float[Tensor, "..."]:
        """m of each sample, as the context's tensors are shaped, or one scalar tensor for all."""

    def step(self) -> None:
        """One training step has been made; only schedules move."""


def drawn_for(margin: Margin, norms: Float[Tensor, "*n"]) -> dict[Strength, Float[Tensor, "*n"]] | None:
    """One number of N(0, 1) per sample for each strength in the margin that draws, in training; None if there is none."""
    if not margin._modules:  # as for most margins: nothing to look through
        return None
    drawing = [m for m in margin.modules() if isinstance(m, Strength) and m.draws and m.training]
    return {strength: torch.randn_like(norms) for strength in drawing} or None


def value(m: float | Strength, context: Context) -> float | Tensor:
    """m in this context: the number itself, or what the strength returns."""
    return m(context) if isinstance(m, Strength) else m


def constant(m: float | Strength, context: Context) -> float | Tensor | None:
    """m in this context as :func:`value`, where no gradient flows through it; None where one may."""
    return m if not isinstance(m, Strength) else m(context) if m.constant else None


def sloped(g: AngularScore, cos: Float[Tensor, "*n"]) -> Sloped | None:
    """g(θ) and ∂g/∂cos θ, where g knows its slope in closed form.

    >>> sloped(hs.angular.SquareCosine(), torch.tensor([0.5]))
    (tensor([0.2500]), tensor([1.]))
    """
    if isinstance(g, Cosine):
        return cos, torch.ones_like(cos)
    return g.with_slope(cos)


def unknown_slope(self: Margin, cos: Tensor, context: Context = ALONE) -> None:
    """No slope in closed form."""
    return None


def number(name: str, given: float | Strength, least: float, below: float = math.inf) -> float | Strength:
    """Returns ``given`` if it is a number (or only takes values) in [least, below); raises a ValueError otherwise."""
    values = (given.least, given.most) if isinstance(given, Strength) else (given,)
    for v in values:
        if isinstance(v, bool) or not isinstance(v, (int, float)) or not least <= v < below:
            top = "" if below == math.inf else f" and below {below:.6g}"
            raise ValueError(f"margin {name} must be a number ≥ {least:g}{top}, got {v!r}")
    return given


def shown(**numbers: float | Strength) -> str:
    """The numbers of a margin for its ``extra_repr``; a strength is printed by itself, as a module."""
    return ", ".join(f"{name}={m:g}" for name, m in numbers.items() if not isinstance(m, Strength))
