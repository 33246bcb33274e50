import pytest

from hypersphere import models, recipes
from hypersphere.data import Digits, PlantedGraph, Shapes
from hypersphere.recipes import RECIPES, SIZES
from hypersphere.recipes import recipe_book as base
from hypersphere.training import Config, StepRate, Task, from_json, to_json

FAMILIES = [
    "lsoftmax-casia",
    "sphereface-casia",
    "sphereface-ablation-casia",
    "sphereface-plus-casia",
    "amsoftmax-mhe-casia",
    "spherenet-learned-cifar10",
    "spherenorm-cifar10",
    "spherenet-imagenet",
    "dcnet-resnet-cifar100",
    "dcnet-imagenet",
    "mhe-resnet-cifar100",
    "mhe-imagenet",
    "mhe-spherenet-cifar10",
    "imbalance-cifar100",
    "imbalance-mnist",
    "comhe-imagenet",
    "comhe-pointnet2",
    "rotation-cifar100",
    "opt-blocks-cifar100",
    "opt-progressive-cifar10",
    "opt-imagenet",
    "lsoftmax-mnist",
    "lsoftmax-cifar10",
    "lsoftmax-cifar100",
    "sphereface-lfw",
    "sphereface-omniglot",
    "spherenet-cifar10",
    "spherenet-deep-cifar10",
    "spherenet-cifar100",
    "dcnet-cifar10",
    "dcnet-cifar100",
    "adversarial-cifar10",
    "mhe-cifar10",
    "imbalance-cifar10",
    "sphereface-plus-omniglot",
    "sphereface-plus-lfw",
    "gan-mhe-cifar10",
    "comhe-cifar100",
    "comhe-pointnet",
    "comhe-gcn-cora",
    "opt-mlp-mnist",
    "opt-cnn-cifar100",
    "opt-resnet-cifar100",
    "opt-gcn-cora",
    "opt-pointnet",
    "opt-few-shot",
    "few-shot-omniglot",
]


def test_every_family_of_the_dissertation_has_a_recipe():
    assert set(FAMILIES) <= RECIPES.keys()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", RECIPES)
def test_configs_are_whole_and_come_back_from_text(name, size):
    config = recipes.get(name).config(size)
    assert config.name == name
    assert issubclass(config.task.target, Task)
    assert to_json(from_json(to_json(config))) == to_json(config)


@pytest.mark.parametrize("entry", RECIPES.values(), ids=RECIPES)
def test_says_what_it_is(entry):
    assert entry.summary.endswith(".")
    assert entry.tables
    assert entry.data
    details = entry.function.__doc__.split("\n", 1)
    assert len(details) == 2
    assert any(word in details[1] for word in ("Liu (2020", "as in", "dissertation"))


@pytest.mark.parametrize("entry", RECIPES.values(), ids=RECIPES)
def test_sizes_grow(entry):
    smoke, laptop, paper = (entry.config(size) for size in SIZES)
    assert smoke.data.target in (Digits, PlantedGraph, Shapes)
    assert smoke.steps <= 20 < laptop.steps <= paper.steps
    assert laptop.backbone.arguments.get("width", 1) <= paper.backbone.arguments.get("width", 1) == 1


def test_milestones_lie_before_the_end():
    for entry in RECIPES.values():
        for size in ("laptop", "paper"):
            config = entry.config(size)
            if config.schedule.target is not StepRate:
                continue
            milestones = config.schedule.get("milestones")
            assert list(milestones) == sorted(milestones)
            assert all(step < config.steps for step in milestones) or config.backbone.target in (
                models.pointnet,
                models.pointnet2,
            )


def test_saturated_milestones_are_those_of_the_appendix():
    assert base.make_saturated_schedule().arguments["milestones"] == (20000, 30000, 37500)


@pytest.mark.untyped
def test_refuses_an_unknown_size_and_name():
    with pytest.raises(ValueError, match="size must be one of smoke, laptop, paper, got 'huge'"):
        recipes.get("mhe-cifar10").config("huge")
    with pytest.raises(
        ValueError,
        match=r"there is no recipe 'mhe-cifar'; there are adversarial-cifar10, .*; did you mean mhe-cifar10\?",
    ):
        recipes.get("mhe-cifar")


def test_a_new_recipe_is_one_function(monkeypatch):
    monkeypatch.setattr(base, "RECIPES", {})

    @base.recipe("mine", tables="–", data="Digits")
    def mine(size):
        """What it is."""
        return Config(steps=3)

    assert base.get("mine").summary == "What it is."
    assert base.get("mine").config("smoke").name == "mine"
