import pytest
import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

from hypersphere.objectives import ArcFace
from hypersphere.orthogonal import coverage


def encoder():
    return nn.Sequential(nn.Embedding(9, 8), nn.TransformerEncoderLayer(8, 2, 16), Conv1D(6, 8), nn.Linear(6, 3))


def test_every_matrix_is_chosen_or_left_out_with_a_reason():
    model = encoder()
    found = coverage(model)
    assert list(found.chosen) == ["1.self_attn.out_proj", "1.linear1", "1.linear2"]
    assert found.unsupported == ["1.self_attn.in_proj_weight", "2"]
    assert found.left_out["2"] == "a Conv1D is not among the layers that this method knows"
    assert found.left_out["0"] == "the rows of an embedding are not neurons"
    matrices = [name for name, p in model.named_parameters() if p.ndim >= 2]
    assert len(matrices) == len(found.chosen) + len(found.left_out)
    assert str(found).splitlines()[-1].split("  ", 1)[0].strip() == "3"


def test_a_headless_model_says_that_its_last_linear_was_left_out():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    assert coverage(model).left_out == {
        "1": "taken for the classifier, which is trained as usual; classifier=False includes it"
    }
    assert coverage(model, classifier=False).left_out == {}
    assert coverage(nn.Linear(4, 2)).left_out == {}


def test_a_head_is_known_for_what_it_is():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2), ArcFace(2, 5))
    found = coverage(model)
    assert list(found.chosen) == ["0", "1"]
    assert found.left_out == {"2": "the classifier, which is trained as usual"}


def test_the_callers_reasons():
    model = nn.Sequential(nn.Linear(4, 4), nn.Conv2d(4, 4, 3), nn.Linear(4, 2))
    found = coverage(model, only=[nn.Linear], skip=["0"], classifier=False)
    assert found.left_out == {"0": "named in skip", "1": "not named in only"}
    assert list(found.chosen) == ["2"]


def test_a_name_that_is_not_there():
    with pytest.raises(ValueError, match="classifier must be a module of Linear, the name of one or False, got 'head'"):
        coverage(nn.Linear(2, 2), classifier="head")
    with pytest.raises(ValueError, match="no module of Linear is called 'conv"):
        coverage(nn.Linear(2, 2), only=["conv*"])


def test_sizes_not_known_yet_are_unsupported_here():
    assert coverage(nn.Sequential(nn.LazyLinear(3)), classifier=False, types=(nn.Conv2d,)).unsupported == ["0"]
    assert torch.nn.LSTM is not None
    assert len(coverage(nn.LSTM(3, 4)).unsupported) == 2
