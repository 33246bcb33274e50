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
    """The angular function g that a hook gets: an :class:`~hypersphere.angular.Angular`, restricted to some classes."""

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
    """Inputs of a hook besides the cosines. The default, for a margin that is called without a head, has only g = cos.

    :meth:`Margin.target` gets one entry per sample, :meth:`Margin.others` gets the same entries as columns (n, 1).

    Attributes:
        g: The angular function of the classes whose cosines are given.
        norms: ‖x‖ of the samples, with its gradient.
        labels: The class of each sample, as an index among all classes.
        ignored: Whether each sample is ignored and must not enter a statistic; None if none is.
        target: cos θ of each sample and its target class; only in ``others``.
        hardest: The k-th largest cosine among the other classes, for a margin with ``hardest = k``; only in ``others``.
        noise: For each random strength, one number of N(0, 1) per sample. It is the same in every hook, block of classes and
            process, and in the backward pass. None if the margin has no random strength.

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
"""Scores and their derivatives by the cosines, both without a graph and in the shape of the cosines."""


class Margin(nn.Module):
    r"""ψ on the target, φ on the others. A new margin overrides :meth:`target`, :meth:`others` or both.

    Both hooks take cosines and a :class:`Context` and return scores that the head scales. A margin is a module, so it
    can have learned parameters and running statistics:

    - ``target`` is called once in each forward pass, with the whole batch, before ``others``. A margin updates its running
      statistics there if ``self.training`` is set.
    - ``others`` is called once for each block of classes, on the process that holds their weights. A large head calls it
      again in the backward pass, with the buffers of the forward pass. The score of a class may depend on its own cosine and
      on the context only, and the hook must not change any state.
    - ``target_with_slope`` and ``others_with_slope`` also return the derivative by the cosine in closed form, so that a head
      needs no graph of the hooks. They are optional.
    - ``penalty`` is a term of each sample's loss that depends on the context only, such as a penalty on ‖x‖.

    Set ``hardest`` to k if ``others`` needs the k-th largest cosine of the other classes in its context. The default is 0,
    because finding it takes one more pass over the classes.

    >>> class Lowered(Margin):
    ...     def target(self, cos, context=EMPTY_CONTEXT):
    ...         return context.g(cos) - 0.5
    >>> head = hs.objectives.MarginSoftmax(2, 2, margin=Lowered())
    >>> head.margin.target(torch.tensor([1.0, 0.0]))
    tensor([ 0.5000, -0.5000])
    """

    hardest: int = 0

    def __init_subclass__(cls, **options: Any):
        """Remove an inherited slope if this class overrides the hook that the slope belongs to."""
        super().__init_subclass__(**options)
        for hook in ("target", "others"):
            if hook in cls.__dict__ and f"{hook}_with_slope" not in cls.__dict__:
                setattr(cls, f"{hook}_with_slope", return_no_slope)

    def target(self, cos: Float[Tensor, "*n"], context: Context = EMPTY_CONTEXT) -> Float[Tensor, "*n"]:
        """Return ψ(θ) of each sample's target class. Without a margin it is g(θ)."""
        return context.g(cos)

    def others(self, cos: Float[Tensor, "n c"], context: Context = EMPTY_CONTEXT) -> Float[Tensor, "n c"]:
        """Return φ(θ) of the other classes. Without a margin it is g(θ)."""
        return context.g(cos)

    def target_with_slope(self, cos: Float[Tensor, "*n"], context: Context = EMPTY_CONTEXT) -> Sloped | None:
        """Return ψ(θ) and ∂ψ/∂cos θ without a graph, or None to leave the derivative to autograd.

        A head calls it instead of :meth:`target`, so it must update the same statistics. If it or :meth:`others_with_slope`
        returns None, the head calls ``target`` after all, so it must then leave the statistics alone. Return None if ψ
        depends on a learned parameter or on the gradient of ‖x‖. A margin that overrides ``target`` alone has no slope.
        """
        return evaluate_with_slope(context.g, cos)

    def others_with_slope(self, cos: Float[Tensor, "n c"], context: Context = EMPTY_CONTEXT) -> Sloped | None:
        """Return φ(θ) and ∂φ/∂cos θ without a graph, or None; see :meth:`target_with_slope`."""
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
    r"""ψ(θ) = g(θ). It gives the modified softmax (eq. 2.18), W-Softmax (eq. 3.10), and S-Softmax with a constant scale.

    >>> NoMargin().target(torch.tensor([1.0, 0.5]))
    tensor([1.0000, 0.5000])
    """


class Strength(nn.Module, ABC):
    """A margin's number m that is not constant: it depends on the class, is random for each sample, or follows a schedule.

    A margin that takes ``m: float | Strength`` calls it in its hooks. ``least`` and ``most`` are bounds of its values, which
    the constructor of a margin checks. ``num_classes`` is the number of classes that it has values for, or None for any number.

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
    """Whether m is random. A head then draws one number per sample in each forward pass, the same on all processes that
    share a batch, and passes it in ``context.noise``."""
    constant: bool = False
    """Whether no gradient flows through m: it has no learned parameters and does not use the gradient of ‖x‖."""

    @abstractmethod
    def forward(self, context: Context) -> Float[Tensor, "..."]:
        """Return m of each sample, in the shape of the tensors of the context, or one scalar tensor for all samples."""

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


def check_strength(name: str, m: float | Strength, least: float, below: float = math.inf) -> float | Strength:
    """Return ``m`` if all its values are in [least, below); raise a ValueError otherwise."""
    values = (m.least, m.most) if isinstance(m, Strength) else (m,)
    for v in values:
        if isinstance(v, bool) or not isinstance(v, (int, float)) or not least <= v < below:
            top = "" if below == math.inf else f" and below {below:.6g}"
            raise ValueError(f"margin {name} must be a number ≥ {least:g}{top}, got {v!r}")
    return m


def format_numbers(**numbers: float | Strength) -> str:
    """Format the numbers of a margin for its ``extra_repr``. A strength is omitted: it is printed as a submodule."""
    return ", ".join(f"{name}={m:g}" for name, m in numbers.items() if not isinstance(m, Strength))
