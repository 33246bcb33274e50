"""Energies of the layers of a network, compared with those of random neurons."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from .canvas import axes, color, tidy


@runtime_checkable
class LayerEnergy(Protocol):
    """The energy of a layer and of random neurons, as in :class:`hypersphere.energy.checkpoint_report.LayerReport`."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def energy(self) -> float: ...  # noqa: D102
    @property
    def random_mean(self) -> float: ...  # noqa: D102
    @property
    def random_std(self) -> float: ...  # noqa: D102


def plot_layer_energies(
    layers: Sequence[LayerEnergy], other: Sequence[LayerEnergy] = (), *, ax: Any = None
) -> tuple[Any, Any]:
    """Draw the energy of each layer divided by that of random neurons, and return ``(fig, ax)``.

    Gray bars show three standard deviations around the mean of random neurons. ``other`` are the layers of a second
    checkpoint, which are matched by name.

    >>> from hypersphere.energy.checkpoint_report import energy_report
    >>> fig, ax = plot_layer_energies(energy_report({"w": torch.randn(8, 4)}))
    >>> [text.get_text() for text in ax.get_yticklabels()]
    ['w']
    """
    figure, ax = axes(ax, size=(7.0, 1.2 + 0.32 * len(layers)))
    position = {layer.name: i for i, layer in enumerate(layers)}
    unit = {layer.name: abs(layer.random_mean) or 1.0 for layer in layers}
    spread = [3 * layer.random_std / unit[layer.name] if layer.random_std < 1e6 else 0.0 for layer in layers]
    middle = [layer.random_mean / unit[layer.name] for layer in layers]
    ax.errorbar(
        middle, range(len(layers)), xerr=spread, fmt="|", color="0.6", capsize=3, label="random, ±3 standard deviations"
    )
    for i, (network, marker, label) in enumerate(((layers, "o", "this network"), (other, "d", "other network"))):
        common = [layer for layer in network if layer.name in position]
        if common:
            values = [layer.energy / unit[layer.name] for layer in common]
            ax.plot(values, [position[layer.name] for layer in common], marker, color=color(i), label=label)
    if max((layer.energy / unit[layer.name] for layer in layers), default=1) > 10:
        ax.set_xscale("log")  # duplicate neurons increase the energy by orders of magnitude
    ax.set_yticks(range(len(layers)), [layer.name for layer in layers])
    ax.invert_yaxis()
    ax.margins(y=0.5 / max(len(layers), 2))
    tidy(ax, xlabel="hyperspherical energy, relative to random neurons")
    # Above the axes, because long names of layers leave no space beside them.
    ax.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=3, frameon=False)
    return figure, ax
