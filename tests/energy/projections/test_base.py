import pytest
import torch

from hypersphere.energy import Projection


def test_the_base_class_says_what_is_missing():
    base = Projection()
    with pytest.raises(TypeError, match="must define parts"):
        base.bind("0", torch.ones(1, 3, 4))
    with pytest.raises(TypeError, match="must define draw"):
        base.draw("basis", 4)
    with pytest.raises(TypeError, match="must define views"):
        base.energies({"0": torch.ones(1, 3, 4)}, lambda x: x.sum((1, 2)))


def test_a_projection_of_ones_own_is_three_methods():
    class Halves(Projection):
        def parts(self, neurons, dim, area):
            return {}

        def views(self, weights):
            return {name: [torch.stack(w.chunk(2, -1))] for name, w in weights.items()}

    halves = Halves(reduce="max")
    weight = torch.arange(8.0).view(1, 2, 4)
    halves.bind("0", weight)
    value = halves.energies({"0": weight}, lambda x: x.sum((1, 2)))["0"]
    assert value == 2 + 3 + 6 + 7
    halves.step({}, lambda x: x)
    assert halves.get_extra_state()["steps"] == 1
