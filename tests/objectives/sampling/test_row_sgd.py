import pytest
import torch

from hypersphere.objectives import RowSGD
from tests.objectives.sampling.contracts import RowsContract


class TestRowSGD(RowsContract):
    variants = (
        {},
        {"weight_decay": 0.05},
        {"momentum": 0.9, "weight_decay": 0.05},
        {"momentum": 0.9, "nesterov": True},
    )

    def optimizer(self, parameters, **options):
        return RowSGD(parameters, lr=0.1, **options)

    def dense(self, parameters, **options):
        return torch.optim.SGD(parameters, lr=0.1, **options)

    @pytest.mark.parametrize("options", [{"lr": -1}, {"momentum": 1.0}, {"weight_decay": -1}, {"nesterov": True}])
    def test_refuses(self, options):
        with pytest.raises(ValueError, match=r"RowSGD needs|nesterov needs"):
            RowSGD(self.parameters(), **options)

    def test_a_decay_that_would_turn_weights_around_is_refused(self):
        parameters = self.parameters()
        self.gradients(parameters, 0)
        with pytest.raises(ValueError, match="lr·weight_decay must be below 1"):
            RowSGD(parameters, lr=10.0, weight_decay=0.2).step()
