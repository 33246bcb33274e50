import pytest
import torch
from torch import nn

from hypersphere.config import Call, Key, as_call, assign, call, keys
from hypersphere.objectives import ArcFace, CenterLoss, Softmax
from hypersphere.training import Config


def made(*assignments):
    return assign(as_call(Config()), assignments).build()


class Net(nn.Module):
    def __init__(self, width: int = 4):
        super().__init__()
        self.width = width


def test_the_readmes_examples():
    config = made(
        *("head=ArcFace", "head.m=0.4", "energy=CoMHE", "energy.projection=AnglePreservingProjection"),
        *("energy.projection.mode=unrolled", "optimizer=Adam", "optimizer.betas=0.8,0.9", "schedule.milestones=3,5"),
    )
    assert config.head == Call(ArcFace, {"m": 0.4})
    assert config.energy.arguments["projection"].arguments == {"mode": "unrolled"}
    assert config.optimizer.build(params=[torch.zeros(1, requires_grad=True)]).defaults["betas"] == (0.8, 0.9)
    assert config.schedule.arguments == {"milestones": (3, 5)}


def test_settings_of_dataclasses_inside():
    config = made("size=16", "samples.validation=0.1", "steps=7", "normalize=unit")
    assert (config.size, config.samples.validation, config.steps, config.normalize) == (
        16,
        0.1,
        7,
        "unit",
    )


def test_entries_of_lists():
    config = made("losses.0.objective=CenterLoss", "losses.0.weight=0.01")
    assert (config.losses[0].objective.target, config.losses[0].weight) == (CenterLoss, 0.01)
    with pytest.raises(ValueError, match=r"losses.2.weight: there are 0 entries, so the next is 0, got 2"):
        made("losses.2.weight=1")


def test_ones_own_code_by_its_path():
    config = made("backbone=tests.config.test_keys:Net", "backbone.width=9")
    assert config.backbone.build().width == 9


def test_a_slot_with_one_natural_choice_starts_by_itself():
    assert made("orthogonal.method=cayley").orthogonal.name == "overparameterize"
    assert made("orthogonal.method=cayley", "orthogonal=none").orthogonal is None


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("head=ArcFac", r"head must be one of .*got 'ArcFac'; did you mean ArcFace\?"),
        ("head.bia=1", r"there is no key head.bia: Softmax has .*did you mean bias\?"),
        ("stepz=1", r"there is no key stepz: Config has .*did you mean steps\?"),
        ("steps=2.5", "steps must be an integer, got 2.5"),
        ("steps=0", "steps must be an integer ≥ 1, got 0"),
        ("energy.projection=RandomProjection", "energy.projection cannot be set before energy, which is .*CoMHE"),
        ("steps", "settings are changed by KEY=VALUE, got 'steps'"),
        ("=3", "settings are changed by KEY=VALUE"),
        ("clip=-1", "clip must be a number > 0 or none, got -1"),
        ("optimizer.lr=NaN", "optimizer.lr must be a finite number ≥ 0, got nan"),
        ("normalize=all", "normalize must be 'none' or 'unit' or"),
        ("threads=1000000", "threads must lie in 0 … 1024"),
    ],
)
def test_errors_name_the_key(assignment, message):
    with pytest.raises(ValueError, match=message):
        made(assignment)


def test_keys_are_listed_with_values_and_help():
    found = {key.path: key for key in keys(as_call(Config(head=call(Softmax))))}
    assert found["steps"] == Key("steps", 1000, "an integer", "optimizer steps.")
    assert "ArcFace" in found["head"].accepted
    assert found["head"].value == "Softmax"
    assert found["optimizer.lr"].value == 0.1
    assert "head.in_features" not in found
    assert found["samples.validation"].value == 0.0
    assert "unit" in found["normalize"].accepted
    for name in ("augment", "energy", "losses"):
        assert found[name].accepted.endswith(f"; several are written {name}.0=…, {name}.1=…")
    assert "several" not in found["size"].accepted
    assert "several" not in found["schedule.milestones"].accepted


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("batch", "write batch_size="),
        ("lr", "the learning rate is optimizer.lr="),
        ("epochs", "steps="),
        ("device", "chosen automatically"),
        ("model", "write backbone="),
    ],
)
def test_keys_of_other_tools_are_explained(key, hint):
    with pytest.raises(ValueError, match=f"there is no key {key}.*{hint}"):
        made(f"{key}=1")


def test_false_is_not_a_name():
    assert made("energy=MHE", "energy.classifier=false").energy.arguments == {"classifier": False}


def test_several_objects_in_one_slot():
    both = made("energy.0=MHE", "energy.0.s=1", "energy.1=Orthonormality")
    assert [part.name for part in both.energies] == ["MHE", "Orthonormality"]
    assert both.energies[0].arguments == {"s": 1.0}
    assert [part.name for part in made("energy=MHE,Orthonormality").energies] == ["MHE", "Orthonormality"]
    assert made("augment.0=Flip", "augment.vertical=0.2").augmentations[0].arguments == {"vertical": 0.2}
    with pytest.raises(ValueError, match=r"energy.s: there are 2 entries, so add an index, such as energy.0.s"):
        made("energy=MHE,Orthonormality", "energy.s=1")


@pytest.mark.parametrize(
    ("method", "argument"),
    [
        *((name, None) for name in ("SymmetricPositive", "Triangular", "Symmetric", "Skew", "Hessenberg")),
        *(("Banded", None), ("GramSchmidt", "iterations=2"), ("GramSchmidt", "modified=true"), ("Cayley", "terms=4")),
    ],
)
def test_orthogonal_methods_are_built_through_their_slot(method, argument):
    more = [] if argument is None else [f"orthogonal.method.{argument}"]
    config = made(f"orthogonal.method={method}", *more)
    net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    config.orthogonal.build(model=net, generator=torch.Generator())
    assert net(torch.zeros(1, 6)).shape == (1, 3)


def test_only_what_a_file_may_hold_is_offered():
    """Functions that read files or fetch weights are not offered, because reopening the run would refuse them."""
    offered = {key.path: key.accepted for key in keys(as_call(Config()))}
    assert "sphereface20" in offered["backbone"]
    assert not {"load_network", "import_onnx"} & set(offered["backbone"].replace(",", " ").split())
    assert "CoMHE" in offered["energy"]
    assert "Penalty" not in offered["energy"].replace(";", ",").split(", ")
