import pytest
import torch

from hypersphere.objectives import RowAdam
from tests.objectives.sampling.contracts import RowsContract


class TestRowAdam(RowsContract):
    def optimizer(self, parameters, **options):
        return RowAdam(parameters, lr=0.1, **options)

    def dense(self, parameters, **options):
        return torch.optim.AdamW(parameters, lr=0.1, **{"weight_decay": 0.0, **options})

    @pytest.mark.parametrize("options", [{"lr": -1}, {"betas": (1.0, 0.9)}, {"eps": 0}, {"weight_decay": -1}])
    def test_refuses(self, options):
        with pytest.raises(ValueError, match="RowAdam needs"):
            RowAdam(self.parameters(), **options)
