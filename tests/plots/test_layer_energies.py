import torch

from hypersphere.energy.checkpoint_report import energy_report
from hypersphere.plots import plot_layer_energies


def test_both_checkpoints_are_drawn_beside_random_layers():
    one, two = (energy_report({"a": torch.randn(9, 8), "b": torch.randn(9, 8)}) for _ in range(2))
    _, ax = plot_layer_energies(one, two[:1])
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [
        "this network",
        "other network",
        "random, ±3 standard deviations",
    ]
    assert [len(line.get_xdata()) for line in ax.lines if line.get_marker() in "od"] == [2, 1]


def test_high_energies_are_drawn_on_a_logarithmic_axis():
    _, ax = plot_layer_energies(energy_report({"a": torch.ones(9, 8)}))
    assert ax.get_xscale() == "log"


def test_the_legend_stays_inside_beside_long_names():
    layers = energy_report(
        {f"transformer.encoder.layer.{i}.attention.output.weight": torch.randn(6, 4) for i in range(2)}
    )
    figure, axes = plot_layer_energies(layers, layers)
    figure.canvas.draw()
    box, page = axes.get_legend().get_window_extent(), figure.bbox
    assert page.x0 <= box.x0 < box.x1 <= page.x1
