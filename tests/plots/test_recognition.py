import pytest
import torch

from hypersphere.plots import plot_cmc, plot_cosine_confusion, plot_roc


def test_roc_and_cmc():
    far = torch.logspace(-3, 0, 5)
    _, ax = plot_roc({"a": (far, far.sqrt())})
    assert ax.get_xscale() == "log"
    assert ax.lines[0].get_ydata()[-1] == 1
    _, ax = plot_cmc({"a": [0.5, 0.8]})
    assert list(ax.lines[0].get_xdata()) == [1, 2]


def test_cosine_confusion_is_symmetric_with_a_unit_diagonal():
    _, ax = plot_cosine_confusion(torch.randn(4, 6), names=list("abcd"))
    shown = torch.as_tensor(ax.images[0].get_array())
    assert torch.allclose(shown, shown.T, atol=1e-6)
    assert shown.diagonal().tolist() == pytest.approx([1, 1, 1, 1], abs=1e-5)
    assert [t.get_text() for t in ax.get_xticklabels()] == list("abcd")
