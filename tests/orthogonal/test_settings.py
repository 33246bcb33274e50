"""Every map can be chosen as a setting, as ``hypersphere train RECIPE orthogonal.method=SymmetricPositive`` does."""

import pytest
from torch import nn

from hypersphere import orthogonal
from hypersphere.config import as_call, assign
from hypersphere.training import Config, from_json, to_json


def overparameterized(*assignments):
    config = assign(as_call(Config()), assignments).build()
    config = from_json(to_json(config))  # as when a run folder is read
    net = nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 2))
    return config.orthogonal.build(model=net)


def chosen_map(*assignments):
    return overparameterized(*assignments)[0].parametrizations.weight[0].rotation.map


@pytest.mark.parametrize(
    "name",
    [
        *("SymmetricPositive", "Triangular", "Banded", "Symmetric", "Skew", "Hessenberg"),
        *("Cayley", "Exponential", "Givens", "GramSchmidt", "Householder", "Lowdin", "Canonical", "Free"),
    ],
)
def test_every_map_is_a_setting(name):
    assert type(chosen_map(f"orthogonal.method={name}")) is getattr(orthogonal, name)


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("GramSchmidt", "iterations", 2),
        ("GramSchmidt", "modified", True),
        ("Cayley", "terms", 4),
        ("Banded", "width", 2),
        ("Triangular", "upper", True),
    ],
)
def test_its_options_are_settings(name, option, value):
    made = chosen_map(f"orthogonal.method={name}", f"orthogonal.method.{option}={str(value).lower()}")
    assert getattr(made, option) == value


def test_names_and_selections_stay_settings():
    assert isinstance(chosen_map("orthogonal.method=lowdin"), orthogonal.Lowdin)
    for text in ("0", '["0"]'):
        net = overparameterized(f"orthogonal.only={text}", "orthogonal.classifier=false")
        assert [nn.utils.parametrize.is_parametrized(layer) for layer in net] == [True, False]


@pytest.mark.parametrize("name", ["oft", "coft", "boft", "hra", "poet", "lora", "nora", "dora"])
def test_every_method_of_fine_tuning_is_a_setting(name):
    net = overparameterized("orthogonal=finetune", f"orthogonal.method={name}", "orthogonal.block=2")
    assert net[0].parametrizations.weight[0].method.name == name


def test_rates_of_generators_are_scaled_in_training():
    from hypersphere.training.optimizers import build_optimizers

    texts = ["orthogonal=finetune", "orthogonal.block=6", "optimizer=Adam", "optimizer.lr=0.1"]
    for scaled, rate in (("true", 0.1 / 15**0.5), ("false", 0.1)):
        config = assign(as_call(Config()), [*texts, f"scale_generators={scaled}"]).build()
        net = config.orthogonal.build(model=nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 2)))
        (optimizer,) = build_optimizers(config, net)
        raw = net[0].parametrizations.weight[0].change.inputs.raw
        rates = {id(p): group["base_lr"] for group in optimizer.param_groups for p in group["params"]}
        assert rates[id(raw)] == pytest.approx(rate)
        assert rates[id(net[1].bias)] == 0.1
