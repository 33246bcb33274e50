import copy

from torch import nn

from hypersphere.orthogonal import finetune, merge


def network():
    return nn.Sequential(nn.Linear(8, 8), nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8)), nn.Linear(8, 3))


def trained(model):
    return [name for name, p in model.named_parameters() if p.requires_grad and "raw" not in name]


def test_only_rotations_and_the_classifier_learn():
    assert trained(finetune(network(), block=4)) == ["2.weight", "2.bias"]
    assert trained(finetune(network(), block=4, classifier=False)) == []
    assert trained(finetune(network(), block=4, classifier=False, train=["1.0"])) == ["1.0.weight", "1.0.bias"]
    assert trained(finetune(network(), block=4, classifier=False, train=[nn.LayerNorm])) == ["1.0.weight", "1.0.bias"]


def test_thawing_restores_what_was_trainable():
    model = network()
    model[0].bias.requires_grad_(False)
    finetune(model, block=4)
    merge(copy.deepcopy(model))
    merge(model, undo=True)
    assert [name for name, p in model.named_parameters() if not p.requires_grad] == ["0.bias"]
    assert not [m for m in model.modules() if "_frozen_for_tuning" in m.__dict__]
