import pytest
import torch
from torch import nn

from hypersphere import models, objectives
from hypersphere.config.names import find_builders, import_target, list_public, look_up, spell_target, suggest
from hypersphere.objectives.margins import Margin


class Mine(nn.Module):
    pass


def forget():
    """Clear the cached exports, as in a new process."""
    list_public.cache_clear()
    find_builders.cache_clear()


def test_a_new_member_is_known_the_moment_it_is_exported(monkeypatch):
    class Brand(objectives.ArcFace):
        pass

    monkeypatch.setattr(objectives, "Brand", Brand, raising=False)
    monkeypatch.setattr(objectives, "__all__", [*objectives.__all__, "Brand"])
    forget()
    try:
        assert look_up("Brand", objectives.MarginSoftmax, ("hypersphere.objectives",), "head") is Brand
    finally:
        monkeypatch.undo()
        forget()


def test_functions_count_by_what_they_return():
    known = find_builders(nn.Module, ("hypersphere.models",))
    assert known["cnn9"] is models.cnn9
    assert "he_normal" not in known


def test_the_same_name_in_two_rooms_can_be_told_apart():
    known = find_builders(object, ("hypersphere.objectives", "torch.nn"))
    assert known["Softmax"] is objectives.Softmax
    assert known["nn.Softmax"] is nn.Softmax
    assert spell_target(objectives.Softmax) == "Softmax"
    assert spell_target(nn.Softmax) == "nn.Softmax"


def test_unknown_names_list_what_there_is():
    with pytest.raises(
        ValueError, match=r"margin must be one of .*AdditiveAngle.*got 'AditiveAngle'; did you mean AdditiveAngle\?"
    ):
        look_up("AditiveAngle", Margin, ("hypersphere.objectives.margins",), "margin")


def test_imports_of_ones_own():
    assert import_target("tests.config.test_names:Mine", "model") is Mine
    assert spell_target(Mine) == "tests.config.test_names:Mine"
    for name, message in {
        "tests.config.nowhere:Mine": "model: 'tests.config.nowhere:Mine' cannot be imported",
        "tests.config.test_names:Yours": "cannot be imported",
        "tests.config.test_names:pytest": "must name something callable",
    }.items():
        with pytest.raises(ValueError, match=message):
            import_target(name, "model")


def test_nearest_and_public():
    assert suggest("qqqq", ["ArcFace"]) == ""
    assert list_public("torch.optim")["SGD"] is torch.optim.SGD
