import pytest
import torch

from hypersphere.energy import Projection


def test_the_base_class_is_abstract():
    with pytest.raises(TypeError, match="abstract"):
        Projection()  # type: ignore[abstract]


def test_a_custom_projection_needs_three_methods():
    class Halves(Projection):
        def parts(self, neurons, dim, area):
            return {}

        def draw(self, part, size):
            return torch.zeros(size)

        def views(self, weights):
            return {name: [torch.stack(w.chunk(2, -1))] for name, w in weights.items()}

    halves = Halves(reduce="max")
    weight = torch.arange(8.0).view(1, 2, 4)
    halves.bind("0", weight)
    value = halves.energies({"0": weight}, lambda x: x.sum((1, 2)))["0"]
    assert value == 2 + 3 + 6 + 7
    halves.step({}, lambda x: x)
    assert halves.get_extra_state()["steps"] == 1
