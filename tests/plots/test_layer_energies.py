import torch

from hypersphere.energy.checkpoints import energy_report
from hypersphere.plots import plot_layer_energies


def test_both_checkpoints_are_drawn_beside_random_layers():
    one, two = (energy_report({"a": torch.randn(9, 8), "b": torch.randn(9, 8)}) for _ in range(2))
    _, ax = plot_layer_energies(one, two[:1])
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [
        "this network",
        "the other",
        "random, ±3 deviations",
    ]
    assert [len(line.get_xdata()) for line in ax.lines if line.get_marker() in "od"] == [2, 1]


def test_duplicates_are_drawn_on_a_logarithm():
    _, ax = plot_layer_energies(energy_report({"a": torch.ones(9, 8)}))
    assert ax.get_xscale() == "log"
