"""The interface of margins: two hooks, one on the target's cosine and one on those of the other classes."""

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
        """Return g(θ) from cos θ."""

    def at(self, theta: Tensor) -> Tensor:
        """Return g(θ) from θ."""

    def span(self, like: Tensor) -> float | Tensor:
        """Return g(0) − g(π)."""

    def with_slope(self, cos: Tensor) -> tuple[Tensor, Tensor] | None:
        """Return g(θ) and ∂g/∂cos θ without a graph, or None to leave the derivative to autograd."""


COSINE: AngularScore = Cosine()


class Context(NamedTuple):
    """Inputs of a hook besides the cosines; a margin that is called on its own gets g = cos only.

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


EMPTY_CONTEXT = Context()
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
    ...     def target(self, cos, context=EMPTY_CONTEXT):
    ...         return context.g(cos) - 0.5
    >>> head = hs.objectives.MarginSoftmax(2, 2, margin=Lowered())
    >>> head.margin.target(torch.tensor([1.0, 0.0]))
    tensor([ 0.5000, -0.5000])
    """

    hardest: int = 0

    def __init_subclass__(cls, **options: Any):
        """Drop an inherited slope if this class replaces the hook that it was written for."""
        super().__init_subclass__(**options)
        for hook in ("target", "others"):
            if hook in cls.__dict__ and f"{hook}_with_slope" not in cls.__dict__:
                setattr(cls, f"{hook}_with_slope", return_no_slope)

    def target(self, cos: Float[Tensor, "*n"], context: Context = EMPTY_CONTEXT) -> Float[Tensor, "*n"]:
        """Return ψ(θ) of each sample's own class; without a margin g(θ)."""
        return context.g(cos)

    def others(self, cos: Float[Tensor, "n c"], context: Context = EMPTY_CONTEXT) -> Float[Tensor, "n c"]:
        """Return φ(θ) of the other classes; g(θ) for most margins."""
        return context.g(cos)

    def target_with_slope(self, cos: Float[Tensor, "*n"], context: Context = EMPTY_CONTEXT) -> Sloped | None:
        """Return ψ(θ) and ∂ψ/∂cos θ without a graph, or None to leave the derivative to autograd.

        A head calls it in place of :meth:`target`, so it moves the same statistics, but only if it does not return
        None. It has no meaning where ψ depends on anything with a gradient besides the cosine: a learned parameter, ‖x‖.
        A margin that overrides ``target`` has no slope unless it overrides this as well.
        """
        return evaluate_with_slope(context.g, cos)

    def others_with_slope(self, cos: Float[Tensor, "n c"], context: Context = EMPTY_CONTEXT) -> Sloped | None:
        """Return φ(θ) and ∂φ/∂cos θ, without a graph, as :meth:`target_with_slope`."""
        return evaluate_with_slope(context.g, cos)

    def penalty(self, context: Context) -> Float[Tensor, "*n"] | None:
        """Return a term to add to the loss of each sample, or None for no such term."""
        return None

    def step(self) -> None:
        """Advance every :class:`Strength` in this margin by one step."""
        for module in self.modules():
            if isinstance(module, Strength):
                module.step()

    def warning(self) -> str | None:
        """Return a warning about unusual numbers of the margin, or None. The constructor of a head shows it."""
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
        """Return m of each sample, shaped like the tensors of the context, or one scalar tensor for all."""

    def step(self) -> None:
        """Advance by one step; only schedules change."""


def draw_noise(margin: Margin, norms: Float[Tensor, "*n"]) -> dict[Strength, Float[Tensor, "*n"]] | None:
    """Draw one number of N(0, 1) per sample for each random strength of the margin. Return None if there is none."""
    if not margin._modules:  # true for most margins
        return None
    drawing = [m for m in margin.modules() if isinstance(m, Strength) and m.draws and m.training]
    return {strength: torch.randn_like(norms) for strength in drawing} or None


def evaluate_strength(m: float | Strength, context: Context) -> float | Tensor:
    """Return m in this context: the number itself, or the result of the strength."""
    return m(context) if isinstance(m, Strength) else m


def evaluate_constant(m: float | Strength, context: Context) -> float | Tensor | None:
    """Return m as :func:`evaluate_strength` does if no gradient flows through it, otherwise None."""
    return m if not isinstance(m, Strength) else m(context) if m.constant else None


def evaluate_with_slope(g: AngularScore, cos: Float[Tensor, "*n"]) -> Sloped | None:
    """Return g(θ) and ∂g/∂cos θ, or None if g has no slope in closed form.

    >>> evaluate_with_slope(hs.angular.SquareCosine(), torch.tensor([0.5]))
    (tensor([0.2500]), tensor([1.]))
    """
    if isinstance(g, Cosine):
        return cos, torch.ones_like(cos)
    return g.with_slope(cos)


def return_no_slope(self: Margin, cos: Tensor, context: Context = EMPTY_CONTEXT) -> None:
    """Return None: there is no slope in closed form."""
    return None


def check_strength(name: str, given: float | Strength, least: float, below: float = math.inf) -> float | Strength:
    """Return ``given`` if all its values are in [least, below); raise a ValueError otherwise."""
    values = (given.least, given.most) if isinstance(given, Strength) else (given,)
    for v in values:
        if isinstance(v, bool) or not isinstance(v, (int, float)) or not least <= v < below:
            top = "" if below == math.inf else f" and below {below:.6g}"
            raise ValueError(f"margin {name} must be a number ≥ {least:g}{top}, got {v!r}")
    return given


def format_numbers(**numbers: float | Strength) -> str:
    """Format the numbers of a margin for its ``extra_repr``. A strength is omitted: it is printed as a submodule."""
    return ", ".join(f"{name}={m:g}" for name, m in numbers.items() if not isinstance(m, Strength))
