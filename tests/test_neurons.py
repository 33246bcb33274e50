import copy
import pickle

import pytest
import torch
from torch import nn

from hypersphere.neurons import (
    ChangeReport,
    Classifier,
    as_selectors,
    attach_change_report,
    get_change_report,
    matches,
    neuron_layers,
    neuron_weights,
    neurons,
    output_layer,
)
from hypersphere.operators import convert, restore
from hypersphere.orthogonal import finetune, merge, overparameterize


@pytest.fixture
def net():
    return nn.Sequential(
        nn.Conv2d(3, 4, 3),
        nn.ReLU(),
        nn.Sequential(nn.Conv2d(4, 6, 1), nn.BatchNorm2d(6)),
        nn.Flatten(),
        nn.Linear(6, 5),
        nn.Linear(5, 2),
    )


def test_layers_and_their_neurons(net):
    assert {name: tuple(neurons(m).shape) for name, m in neuron_layers(net).items()} == {
        "0": (4, 27),
        "2.0": (6, 4),
        "4": (5, 6),
        "5": (2, 5),
    }


@pytest.mark.parametrize(
    ("skip", "left"),
    [
        (["5"], ["0", "2.0", "4"]),
        (["2.*"], ["0", "4", "5"]),
        ([nn.Conv2d], ["4", "5"]),
        ([lambda name, module: module.weight.shape[0] < 5], ["2.0", "4"]),
    ],
)
def test_skip(net, skip, left):
    assert list(neuron_layers(net, skip=skip)) == left


def test_only_and_objects(net):
    assert list(neuron_layers(net, only=[nn.Linear], skip=[net[5]])) == ["4"]


def test_a_name_that_is_not_there_is_an_error(net):
    with pytest.raises(ValueError, match="no module of Sequential is called 'fc'"):
        neuron_layers(net, skip=["fc"])


def test_shared_modules_count_once():
    layer = nn.Linear(3, 3)
    assert list(neuron_layers(nn.Sequential(layer, layer))) == ["0"]


def test_the_classifier_is_the_last_linear(net):
    assert output_layer(net) == "5"
    assert output_layer(nn.Conv2d(1, 1, 1)) is None
    assert output_layer(nn.Linear(2, 2)) == ""


def test_neurons_are_those_of_the_forward_pass():
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(3, 4))
    assert torch.equal(neurons(layer), layer.weight)
    with pytest.raises(ValueError, match="two or more dimensions"):
        neurons(nn.BatchNorm1d(3))


class Head(Classifier):
    def __init__(self, features=4, classes=3):
        super().__init__()
        self.weight, self.num_classes = nn.Parameter(torch.randn(classes, features)), classes


class TestOutputLayer:
    def test_a_head_classifies_whatever_comes_after_it(self):
        assert output_layer(nn.Sequential(nn.Linear(4, 4), Head(), nn.Linear(4, 4))) == "1"

    def test_a_network_says_that_it_has_no_classifier(self):
        body = nn.Sequential(nn.Linear(4, 4))
        body.classifier = None
        assert output_layer(body) is None
        assert output_layer(nn.Sequential(body)) is None
        assert output_layer(nn.Sequential(body, nn.Linear(4, 3))) == "1"

    def test_a_matrix_called_classifier_is_one(self):
        class Rows(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.randn(3, 4))

        model = nn.Sequential(nn.Linear(4, 4))
        model.classifier = Rows()
        assert output_layer(model) == "classifier"

    def test_a_linear_layer_inside_is_none(self):
        assert output_layer(nn.Sequential(nn.Linear(4, 4), nn.Conv2d(3, 4, 1))) is None
        assert output_layer(nn.Sequential(nn.Linear(4, 4), nn.MultiheadAttention(4, 2))) is None


def test_every_matrix_is_found_or_has_its_reason():
    model = nn.Sequential(nn.Conv2d(4, 6, 3, groups=2), Head(), nn.ConvTranspose2d(3, 4, 1), nn.BatchNorm1d(3))
    found, others = neuron_weights(model)
    assert {name: tuple(w.rows().shape) for name, w in found.items()} == {"0": (2, 3, 18), "1": (1, 3, 4)}
    assert list(others) == ["2.weight"]
    nn.utils.parametrizations.weight_norm(model[0])
    assert neuron_weights(model)[1] == others
    assert torch.equal(neuron_weights(model)[0]["0"].rows().flatten(0, 1), model[0].weight.flatten(1))


class TestTiedWeights:
    def test_layers_that_share_a_weight_count_once(self):
        net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3))
        net[1].weight = net[0].weight
        found, others = neuron_weights(net)
        assert list(found) == ["0", "2"]
        assert others == {"1": "its weight is tied to that of 0"}

    def test_a_table_says_which_layer_has_its_weight(self):
        net = nn.ModuleDict({"words": nn.Embedding(9, 4), "places": nn.Embedding(5, 4), "out": nn.Linear(4, 9)})
        net["out"].weight = net["words"].weight
        found, others = neuron_weights(net)
        table = "an Embedding is a table: its rows are looked up, not multiplied"
        assert list(found) == ["out"]
        assert others == {"words": f"{table}; its weight is tied to that of out", "places": table}

    def test_computed_weights_are_each_their_own(self):
        net = nn.Sequential(*(nn.utils.parametrizations.weight_norm(nn.Linear(3, 4)) for _ in range(2)))
        assert list(neuron_weights(net)[0]) == ["0", "1"]


def test_fused_projections_are_three_groups():
    net = nn.ModuleDict({"qkv": nn.Linear(4, 12), "c_attn": nn.Linear(4, 8), "fc": nn.Linear(4, 12)})
    assert {name: tuple(w.rows().shape) for name, w in neuron_weights(net)[0].items()} == {
        "qkv": (3, 4, 4),
        "c_attn": (1, 8, 4),
        "fc": (1, 12, 4),
    }


class TestChangeReport:
    @pytest.mark.parametrize("selectors", ["0", ["0"], nn.Linear, lambda name, module: name == "0"])
    def test_a_selector_may_stand_alone(self, selectors):
        chosen = as_selectors(selectors)
        assert isinstance(chosen, list)
        assert any(matches("0", nn.Linear(2, 2), selector) for selector in chosen)

    def test_a_module_is_one_selector_although_it_is_iterable(self):
        net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
        assert as_selectors(net) == [net]

    def test_it_is_copied_and_pickled_with_its_model(self):
        net = nn.Linear(2, 2)
        attach_change_report(net, ChangeReport({"": "Linear"}))
        for again in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
            assert get_change_report(again) == ChangeReport({"": "Linear"})
        assert list(net.state_dict()) == ["weight", "bias"]

    def test_a_model_that_nothing_changed_has_none(self):
        with pytest.raises(ValueError, match="this Linear has no change report: call convert"):
            get_change_report(nn.Linear(2, 2))

    def test_all_functions_return_the_model_and_report_alike(self):
        net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.Linear(8, 2))
        for change in (convert, restore, overparameterize, merge, finetune, merge):
            assert change(net, skip="2") is net
            report = get_change_report(net)
            assert "0" in report.changed
            assert "2" not in report.changed
            assert set(report.new_parameters) <= {name for name, _ in net.named_parameters()}
        for change in (convert, restore, overparameterize, merge, finetune, merge):
            assert list(get_change_report(change(net, only="0")).changed) == ["0"]
