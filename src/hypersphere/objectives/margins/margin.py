"""The interface of margins: one hook for the cosine of the target class and one for those of the other classes."""

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
    """The angular function g that a hook receives: an :class:`~hypersphere.angular.Angular`, restricted to some classes."""

    def __call__(self, cos: Tensor) -> Tensor:
        """Return g(θ) from cos θ."""

    def at(self, theta: Tensor) -> Tensor:
        """Return g(θ) from θ."""

    def span(self, like: Tensor) -> float | Tensor:
        """Return g(0) − g(π)."""

    def with_slope(self, cos: Tensor) -> tuple[Tensor, Tensor] | None:
        """Return g(θ) and ∂g/∂cos θ without an autograd graph, or None to leave the derivative to autograd."""


COSINE: AngularScore = Cosine()


class Context(NamedTuple):
    """Inputs of a hook besides the cosines. The default is for calling a margin without a head: g = cos and nothing else.

    :meth:`Margin.target` receives one entry per sample; :meth:`Margin.others` receives the same entries as columns (n, 1).

    Attributes:
        g: The angular function of the classes whose cosines are given.
        norms: ‖x‖ of the samples, with its gradient.
        labels: The class of each sample, as an index among all classes.
        ignored: Whether each sample is ignored; None if no sample is. Ignored samples must not enter statistics.
        target: cos θ between each sample and its target class; only in ``others``.
        hardest: The k-th largest cosine among the other classes, for a margin with ``hardest = k``; only in ``others``.
        noise: For each random strength, one number from N(0, 1) per sample. The numbers are the same in every hook, every
            block of classes and every process, and in the backward pass. None if the margin has no random strength.

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
"""Scores and their derivatives with respect to the cosines, in the shape of the cosines and without an autograd graph."""


class Margin(nn.Module):
    r"""Base class of margins: ψ changes the score of the target class, φ those of the other classes.

    A new margin overrides :meth:`target`, which computes ψ, :meth:`others`, which computes φ, or both. The hooks take cosines
    and a :class:`Context` and return scores that the head multiplies by its scale. A margin is a module, so it can have
    learned parameters and running statistics:

    - ``target`` is called once per forward pass, with the whole batch, before ``others``. This is where a margin updates its
      running statistics if ``self.training`` is set.
    - ``others`` is called once per block of classes, on the process that holds their weights. A head with many classes calls
      it again in the backward pass, with the buffers of the forward pass. The score of a class may depend only on its own
      cosine and on the context, and the hook must not change any state.
    - ``target_with_slope`` and ``others_with_slope`` are optional. They also return the derivative with respect to the cosine
      in closed form, so that a head needs no autograd graph of the hooks.
    - ``penalty`` is an additional term of each sample's loss that depends only on the context, such as a penalty on ‖x‖.

    Set ``hardest`` to k if ``others`` needs the k-th largest cosine among the other classes in its context. The default is 0,
    which saves a pass over the classes.

    >>> class Lowered(Margin):
    ...     def target(self, cos, context=EMPTY_CONTEXT):
    ...         return context.g(cos) - 0.5
    >>> head = hs.objectives.MarginSoftmax(2, 2, margin=Lowered())
    >>> head.margin.target(torch.tensor([1.0, 0.0]))
    tensor([ 0.5000, -0.5000])
    """

    hardest: int = 0

    def __init_subclass__(cls, **options: Any):
        """Disable an inherited ``…_with_slope`` method if this class overrides only the hook that it belongs to."""
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
        """Return ψ(θ) and ∂ψ/∂cos θ without an autograd graph, or None to leave the derivative to autograd.

        A head calls this method instead of :meth:`target`, so it must update the same running statistics. If this method or
        :meth:`others_with_slope` returns None, the head also calls ``target``. In both cases this method must return None and
        not update any statistics, because ``target`` updates them.

        Return None if ψ depends on a learned parameter or if a gradient flows to ‖x‖. If a subclass overrides ``target`` but
        not this method, this method returns None.
        """
        return evaluate_with_slope(context.g, cos)

    def others_with_slope(self, cos: Float[Tensor, "n c"], context: Context = EMPTY_CONTEXT) -> Sloped | None:
        """Return φ(θ) and ∂φ/∂cos θ without an autograd graph, or None; see :meth:`target_with_slope`."""
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
        """Return a warning about unusual parameters of the margin, or None. The constructor of a head shows it."""
        return None


class NoMargin(Margin):
    r"""ψ(θ) = φ(θ) = g(θ), as in the modified softmax (eq. 2.18), W-Softmax (eq. 3.10), and S-Softmax with a constant scale.

    >>> NoMargin().target(torch.tensor([1.0, 0.5]))
    tensor([1.0000, 0.5000])
    """


class Strength(nn.Module, ABC):
    """A margin parameter m that varies: it depends on the class, is random for each sample, or follows a schedule.

    A margin that accepts ``m: float | Strength`` evaluates the strength in its hooks. ``least`` and ``most`` are the bounds of
    m, which the constructor of a margin checks. ``num_classes`` is the number of classes that the strength has values for, or
    None if it works for any number.

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
    """Whether m is random. If so, a head draws one number per sample in each forward pass, the same on all processes that
    share a batch, and passes the numbers in ``context.noise``."""
    constant: bool = False
    """Whether no gradient flows through m: it has no learned parameters and does not use the gradient of ‖x‖."""

    @abstractmethod
    def forward(self, context: Context) -> Float[Tensor, "..."]:
        """Return m of each sample, in the shape of the tensors of the context, or one scalar tensor for all samples."""

    def step(self) -> None:
        """Advance by one step; only schedules change."""


def draw_noise(margin: Margin, norms: Float[Tensor, "*n"]) -> dict[Strength, Float[Tensor, "*n"]] | None:
    """Draw one number from N(0, 1) per sample for each random strength of the margin. Return None if there is none."""
    if not margin._modules:  # true for most margins
        return None
    random_strengths = [m for m in margin.modules() if isinstance(m, Strength) and m.draws and m.training]
    return {strength: torch.randn_like(norms) for strength in random_strengths} or None


def evaluate_strength(m: float | Strength, context: Context) -> float | Tensor:
    """Return m in this context: the number itself, or the value of the strength."""
    return m(context) if isinstance(m, Strength) else m


def evaluate_constant(m: float | Strength, context: Context) -> float | Tensor | None:
    """Return m as :func:`evaluate_strength` does, or None if gradients flow through it."""
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
            limit = "" if below == math.inf else f" and below {below:.6g}"
            raise ValueError(f"margin {name} must be a number ≥ {least:g}{limit}, got {v!r}")
    return m


def format_numbers(**numbers: float | Strength) -> str:
    """Format the parameters of a margin for its ``extra_repr``. A strength is omitted: it is printed as a submodule."""
    return ", ".join(f"{name}={m:g}" for name, m in numbers.items() if not isinstance(m, Strength))
