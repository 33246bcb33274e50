import pytest
import torch
from torch import nn

from hypersphere.orthogonal import TuningMethod, finetune, overparameterize, plan_finetune


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(9, 8)
        self.hidden = nn.Linear(8, 8)
        self.decoder = nn.Linear(8, 9, bias=False)
        self.decoder.weight = self.table.weight

    def forward(self, x):
        return self.decoder(self.hidden(self.table(x)))


def test_every_matrix_is_reported():
    model = nn.Sequential(
        nn.TransformerEncoderLayer(8, 2, 16), nn.GRU(8, 4), nn.ConvTranspose2d(2, 2, 3), nn.Linear(8, 3)
    )
    plan = plan_finetune(model)
    tuned = ["0.self_attn.in_proj_weight", "0.self_attn.out_proj", "0.linear1", "0.linear2"]
    assert list(plan.changed) == tuned
    assert set(plan.skipped) == {"1.weight_ih_l0", "1.weight_hh_l0", "2.weight", "3"}
    assert set(plan.unsupported) == {"1.weight_ih_l0", "1.weight_hh_l0", "2.weight"}
    assert "0.linear1                   changed  Linear, 16 neurons of 8 numbers; block 8" in str(plan)
    with pytest.warns(UserWarning, match="layers frozen without R .*1.weight_ih_l0"):
        finetune(model)


def test_selection():
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.MultiheadAttention(8, 2))
    assert list(plan_finetune(model, only=["1"], classifier=False).changed) == ["1"]
    assert list(plan_finetune(model, only=[nn.Linear], classifier=False).changed) == ["0", "1", "2.out_proj"]
    assert list(plan_finetune(model, skip=["2.in_proj_weight", "0"], classifier=False).changed) == ["1", "2.out_proj"]
    assert list(plan_finetune(model, only=["2.in_proj_weight"], classifier=False).changed) == ["2.in_proj_weight"]
    plan = plan_finetune(model, train=["2"], classifier=False)
    assert list(plan.changed) == ["0", "1"]
    assert plan.skipped["2.out_proj"] == "named in train, so it is trained as usual"
    with pytest.raises(ValueError, match="is called 'nothing'"):
        plan_finetune(model, only=["nothing"])


def test_tied_weights_are_left_out_or_refused_by_name():
    plan = plan_finetune(Tied(), classifier=False)
    assert list(plan.changed) == ["hidden"]
    assert plan.skipped["decoder"].startswith("its weight is tied (table.weight, decoder.weight)")
    assert "its weight is tied" in plan_finetune(Tied()).skipped["decoder"]  # not trained as a classifier by default
    assert plan_finetune(Tied(), classifier="decoder").skipped["decoder"] == "the classifier, which is trained as usual"
    with pytest.raises(ValueError, match="'decoder' is named in only but cannot be tuned: its weight is tied"):
        plan_finetune(Tied(), only=["decoder"], classifier=False)


def test_one_layer_in_two_places_is_one_layer():
    layer = nn.Linear(8, 8)
    assert list(plan_finetune(nn.Sequential(layer, nn.ReLU(), layer), classifier=False).changed) == ["0"]


def test_reasons():
    lazy = nn.Sequential(
        nn.LazyLinear(4), nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)), nn.Conv2d(1, 4, 1), nn.Linear(37, 3)
    )
    left = plan_finetune(lazy, TuningMethod("oft", 8), classifier=False).skipped
    assert "run one batch" in left["0"]
    assert "computed from something else" in left["1"]
    assert left["2"] == "its neurons have 1 number, which cannot be rotated"
    assert left["3"] == "no block from 2 to 8 divides the 37 numbers of its neurons"
    with pytest.raises(ValueError, match="has no layer to fine-tune"):
        finetune(nn.Sequential(nn.Conv2d(1, 4, 1)))


@pytest.mark.parametrize("first", [finetune, overparameterize])
def test_a_second_rotation_is_refused(first):
    model = first(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 2)))
    with pytest.raises(ValueError, match="has a rotation already"):
        finetune(model)
    with pytest.raises(ValueError, match=r"already|computed from something else"):
        overparameterize(model)


def test_a_plan_changes_nothing():
    model = Tied()
    keys = list(model.state_dict())
    plan_finetune(model)
    assert list(model.state_dict()) == keys
    assert all(p.requires_grad for p in model.parameters())
    assert isinstance(model.hidden.weight, torch.nn.Parameter)
