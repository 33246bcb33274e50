import pytest
import torch

from hypersphere.evaluation import evaluating


def test_every_module_gets_its_own_mode_back_whatever_happens():
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(2).eval(), torch.nn.Sequential(torch.nn.Dropout()))
    before = [module.training for module in model.modules()]
    assert before == [True, False, True, True]

    def fail():
        with evaluating(model):
            assert not any(module.training for module in model.modules())
            raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"):
        fail()
    assert [module.training for module in model.modules()] == before
