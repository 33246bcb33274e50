import threading
import time

import pytest
import torch

from hypersphere.evaluation import evaluation_mode


def test_every_module_gets_its_own_mode_back_whatever_happens():
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(2).eval(), torch.nn.Sequential(torch.nn.Dropout()))
    before = [module.training for module in model.modules()]
    assert before == [True, False, True, True]

    def fail():
        with evaluation_mode(model):
            assert not any(module.training for module in model.modules())
            raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"):
        fail()
    assert [module.training for module in model.modules()] == before


def test_threads_that_share_a_model_stay_in_evaluation_mode():
    model = torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.BatchNorm1d(4)).train()
    x = torch.randn(8, 4)
    with evaluation_mode(model), torch.no_grad():
        right = model(x)
    wrong = []

    def work():
        for _ in range(50):
            with evaluation_mode(model), torch.no_grad():
                time.sleep(0.0001)
                if not torch.equal(model(x), right):
                    wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert all(module.training for module in model.modules())
