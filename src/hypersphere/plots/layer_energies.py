"""Energies of a network's layers beside those of random neurons."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from .canvas import axes as new_axes
from .canvas import color


@runtime_checkable
class Measured(Protocol):
    """What is drawn of a layer; :class:`hypersphere.energy.checkpoint_report.LayerReport` has it."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def energy(self) -> float: ...  # noqa: D102
    @property
    def random_mean(self) -> float: ...  # noqa: D102
    @property
    def random_std(self) -> float: ...  # noqa: D102


def plot_layer_energies(
    layers: Sequence[Measured], other: Sequence[Measured] = (), *, ax: Any = None
) -> tuple[Any, Any]:
    """Plot the energy of each layer relative to random neurons, with the spread of the latter; ``other`` is a second checkpoint.

    Returns the figure and its axes.

    >>> from hypersphere.energy.checkpoint_report import energy_report
    >>> figure, ax = plot_layer_energies(energy_report({"w": torch.randn(8, 4)}))
    >>> [text.get_text() for text in ax.get_yticklabels()]
    ['w']
    """
    figure, axes = new_axes(ax, size=(7.0, 1.2 + 0.32 * len(layers)))
    position = {layer.name: i for i, layer in enumerate(layers)}
    unit = {layer.name: abs(layer.random_mean) or 1.0 for layer in layers}
    spread = [3 * layer.random_std / unit[layer.name] if layer.random_std < 1e6 else 0.0 for layer in layers]
    middle = [layer.random_mean / unit[layer.name] for layer in layers]
    axes.errorbar(
        middle, range(len(layers)), xerr=spread, fmt="|", color="0.6", capsize=3, label="random, ±3 deviations"
    )
    for i, (shown, marker, label) in enumerate(((layers, "o", "this network"), (other, "d", "the other"))):
        kept = [layer for layer in shown if layer.name in position]
        if kept:
            values = [layer.energy / unit[layer.name] for layer in kept]
            axes.plot(values, [position[layer.name] for layer in kept], marker, color=color(i), label=label)
    if max((layer.energy / unit[layer.name] for layer in layers), default=1) > 10:
        axes.set_xscale("log")  # duplicates raise the energy by orders of magnitude
    axes.set_yticks(range(len(layers)), [layer.name for layer in layers])
    axes.invert_yaxis()
    axes.set_xlabel("hyperspherical energy over that of random neurons")
    axes.margins(y=0.5 / max(len(layers), 2))
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=3, frameon=False)  # long names push the axes right
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure, axes
