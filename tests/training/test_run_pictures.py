import pathlib

import matplotlib.pyplot as plt
import pytest
import torch

from hypersphere import plots
from hypersphere.training.run_pictures import draw


@pytest.mark.parametrize("dim", [2, 3])
def test_draws_a_file_and_leaves_nothing_open(dim: int, tmp_path: pathlib.Path) -> None:
    features, labels = torch.randn(30, dim), torch.arange(30) % 3
    draw(tmp_path / "x.png", plots.plot_features, features, labels, projection="3d" if dim == 3 else None)
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
    assert plt.get_fignums() == []
