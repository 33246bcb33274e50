import pytest
import torch
from torch import nn

from hypersphere.orthogonal import finetune, group_finetuned


def network(method="oft", **options):
    torch.manual_seed(0)
    return finetune(nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 3)), method, **options)


def rates(model, **options):
    by_id = {id(p): group["lr"] for group in group_finetuned(model, 0.1, **options) for p in group["params"]}
    return {name.rpartition(".")[2]: by_id[id(p)] for name, p in model.named_parameters() if p.requires_grad}


@pytest.mark.parametrize("block", [2, 4, 16, 32])
def test_a_generator_is_scaled_by_the_root_of_its_entries(block):
    found = rates(network(block=block))
    assert found["raw"] == pytest.approx(0.1 / (block * (block - 1) / 2) ** 0.5)
    assert found["weight"] == found["bias"] == 0.1
    assert rates(network(block=block), scale=False)["raw"] == 0.1


def test_parameters_other_than_generators_are_not_scaled():
    assert set(rates(network("hra")).values()) == {0.1}
    assert set(rates(network("lora")).values()) == {0.1}
    assert rates(network("oft", block=4, lengths=True))["lengths"] == 0.1


@pytest.mark.parametrize("scale", [True, False])
def test_one_step_of_adam_rotates_equally_for_every_block_size(scale):
    lengths = []
    for block in (4, 8, 16, 32):
        model = network(block=block, classifier=False, only=["0"])
        optimizer = torch.optim.Adam(group_finetuned(model, 0.01, scale=scale))
        model(torch.randn(16, 32)).square().mean().backward()
        optimizer.step()
        own = model[0].parametrizations.weight[0].change.inputs
        lengths.append(float(torch.linalg.matrix_norm(own.blocks()[0].detach() - torch.eye(block)).mean()))
    spread = max(lengths) / min(lengths)
    assert spread < 1.01 if scale else spread > 5


def test_refuses():
    with pytest.raises(ValueError, match="lr must be a number ≥ 0"):
        group_finetuned(network(), -1)
