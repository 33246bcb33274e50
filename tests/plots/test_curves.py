import math

import pytest
import torch

from hypersphere import angular
from hypersphere.plots import plot_angular, plot_dynamics, plot_magnitude


def test_angular_curves_run_from_zero_to_pi():
    _, ax = plot_angular({"cosine": angular.Cosine(), "linear": angular.Linear()})
    x, y = ax.lines[1].get_data()
    assert (x[0], x[-1]) == pytest.approx((0, math.pi))
    assert torch.as_tensor(y).tolist() == pytest.approx((1 - 2 * torch.as_tensor(x) / math.pi).tolist(), abs=1e-9)
    assert ax.get_xlabel() == "θ (radians)"


def test_magnitudes():
    _, ax = plot_magnitude({"tanh": torch.tanh}, longest=2.0)
    assert ax.lines[0].get_ydata()[-1] == pytest.approx(math.tanh(2))


def test_dynamics():
    _, ax = plot_dynamics([0, 1, 2], {"conv1": [3.0, 2.0, 1.0], "conv2": [1.0, 1.0, 1.0]}, ylabel="energy", log=True)
    assert ax.get_yscale() == "log"
    assert [line.get_label() for line in ax.lines] == ["conv1", "conv2"]
    with pytest.raises(ValueError, match="'a' has 1 values for 2 steps"):
        plot_dynamics([0, 1], {"a": [1.0]})


@pytest.mark.parametrize(("steps", "line"), [(1, "None"), (2, "None"), (3, "-")])
def test_two_points_are_drawn_without_a_line(steps, line):
    _, ax = plot_dynamics(range(steps), {"loss": [1.0] * steps})
    assert ax.lines[0].get_linestyle() == line
    assert ax.lines[0].get_marker() == "o"
