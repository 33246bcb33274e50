import pytest
import torch
from torch import nn

from hypersphere.objectives import ArcFace
from hypersphere.orthogonal import plan_overparameterize
from hypersphere.orthogonal.layer_selection import select_layers

Conv1D = pytest.importorskip("transformers.pytorch_utils", reason="needs transformers").Conv1D


def encoder():
    return nn.Sequential(nn.Embedding(9, 8), nn.TransformerEncoderLayer(8, 2, 16), Conv1D(6, 8), nn.Linear(6, 3))


def test_every_matrix_is_chosen_or_left_out_with_a_reason():
    model = encoder()
    found = plan_overparameterize(model)
    assert list(found.changed) == ["1.self_attn.out_proj", "1.linear1", "1.linear2"]
    assert found.unsupported == ["1.self_attn.in_proj_weight", "2"]
    assert found.skipped["2"] == "a Conv1D is not among the layers that this method knows"
    assert found.skipped["0"] == "the rows of an embedding are not neurons"
    matrices = [name for name, p in model.named_parameters() if p.ndim >= 2]
    assert len(matrices) == len(found.changed) + len(found.skipped)
    assert str(found).splitlines()[-1].split("  ", 1)[0].strip() == "3"


def test_a_headless_model_says_that_its_last_linear_was_left_out():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    assert plan_overparameterize(model).skipped == {
        "1": "taken for the classifier, which is trained as usual; classifier=False includes it"
    }
    assert plan_overparameterize(model, classifier=False).skipped == {}
    assert plan_overparameterize(nn.Linear(4, 2)).skipped == {}


def test_a_head_is_known_for_what_it_is():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2), ArcFace(2, 5))
    found = plan_overparameterize(model)
    assert list(found.changed) == ["0", "1"]
    assert found.skipped == {"2": "the classifier, which is trained as usual"}


def test_reasons_of_the_report():
    model = nn.Sequential(nn.Linear(4, 4), nn.Conv2d(4, 4, 3), nn.Linear(4, 2))
    found = plan_overparameterize(model, only=[nn.Linear], skip=["0"], classifier=False)
    assert found.skipped == {"0": "named in skip", "1": "not named in only"}
    assert list(found.changed) == ["2"]


def test_a_name_that_is_not_there():
    with pytest.raises(ValueError, match="classifier must be a module of Linear, the name of one or False, got 'head'"):
        plan_overparameterize(nn.Linear(2, 2), classifier="head")
    with pytest.raises(ValueError, match="no module of Linear is called 'conv"):
        plan_overparameterize(nn.Linear(2, 2), only=["conv*"])


def test_sizes_not_known_yet_are_unsupported_here():
    assert select_layers(nn.Sequential(nn.LazyLinear(3)), None, (), False, types=(nn.Conv2d,))[1].unsupported == ["0"]
    assert torch.nn.LSTM is not None
    assert len(plan_overparameterize(nn.LSTM(3, 4)).unsupported) == 2
