import torch
from torch import nn

from hypersphere.orthogonal import finetune, group_matrices
from tests.orthogonal.finetuning.contracts import Conv1D


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(9, 8)
        self.mixed = nn.Conv1d(8, 8, 3, groups=2)
        self.norm = nn.LayerNorm(8)
        self.attention = nn.MultiheadAttention(8, 2)
        self.flipped = Conv1D(8, 8)
        self.hidden = nn.Linear(8, 8)
        self.scale = nn.Parameter(torch.ones(8, 8))
        self.decoder = nn.Linear(8, 9, bias=False)
        self.decoder.weight = self.table.weight
        self.classifier = nn.Linear(8, 3)


def names(model, groups):
    by_id = {id(p): name for name, p in model.named_parameters()}
    return [[by_id[id(p)] for p in group["params"]] for group in groups]


def test_every_parameter_goes_where_it_belongs():
    model = Network()
    matrices, others = group_matrices(model)
    found = {(g["parts"], g["transposed"]): n for g, n in zip(matrices, names(model, matrices), strict=True)}
    assert found == {
        (2, False): ["mixed.weight"],
        (3, False): ["attention.in_proj_weight"],
        (1, False): ["attention.out_proj.weight", "hidden.weight"],
        (1, True): ["flipped.weight"],
    }
    decayed, free = names(model, others)
    assert sorted(decayed) == ["classifier.weight", "scale"]
    assert [g["weight_decay"] for g in others] == [0.01, 0.0]
    assert "table.weight" in free  # an embedding table, tied to the decoder
    routed = [p for group in (*matrices, *others) for p in group["params"]]
    assert len(routed) == len({id(p) for p in routed}) == len(list(model.parameters()))


def test_without_a_classifier_all_layers_are_matrices():
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    assert names(net, group_matrices(net).matrices) == [["0.weight"]]
    assert names(net, group_matrices(net, classifier=False).matrices) == [["0.weight", "1.weight"]]


def test_frozen_parameters_are_left_out_and_rotations_go_to_adamw():
    net = finetune(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 2)), block=4)
    matrices, others = group_matrices(net)
    assert matrices == []
    assert {n for group in names(net, others) for n in group} == {
        "0.parametrizations.weight.0.tasks.default.inputs.raw",
        "1.weight",
        "1.bias",
    }
