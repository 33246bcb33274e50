import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch_geometric.nn import GCNConv
from torch_geometric.nn.dense.linear import Linear as GeometricLinear

from hypersphere import angular
from hypersphere.neurons import get_change_report
from hypersphere.operators import Conv2d, Linear, OperatorLayer, convert, magnitudes, restore


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        out = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(out + self.downsample(x))


class ResNet(nn.Module):
    """A network with the shapes and names of torch.hub's ResNet."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.layer1 = nn.Sequential(Block(8, 8, 1), Block(8, 16, 2))
        self.fc = nn.Linear(16, 10)

    def forward(self, x):
        return self.fc(self.layer1(torch.relu(self.bn1(self.conv1(x)))).mean((2, 3)))


@pytest.fixture
def net():
    return ResNet().eval()


def test_a_resnet_keeps_its_weights_and_names(net):
    x, state = torch.randn(2, 3, 16, 16), copy.deepcopy(net.state_dict())
    parameters, before = list(net.parameters()), net(x)
    report = get_change_report(
        convert(net, magnitude=magnitudes.Tanh(learnable_radius=False), angular=angular.SquareCosine(), skip=["fc"])
    )
    assert len(report.changed) == 7
    assert report.skipped == {"fc": "named in skip"}
    assert report.new_parameters == []
    assert all(a is b for a, b in zip(net.parameters(), parameters, strict=True))
    assert list(net.state_dict()) == list(state)
    net.load_state_dict(state)
    changed = net(x)
    assert not torch.allclose(changed, before)
    block = net.layer1[0]
    expected = Conv2d(
        8, 8, 3, 1, 1, bias=False, magnitude=magnitudes.Tanh(learnable_radius=False), angular=angular.SquareCosine()
    )
    expected.load_state_dict(block.conv1.state_dict())
    y = torch.randn(1, 8, 5, 5)
    assert torch.equal(block.conv1(y), expected(y))
    assert len(get_change_report(restore(net)).changed) == 7
    assert torch.equal(net(x), before)
    assert not any(isinstance(m, OperatorLayer) for m in net.modules())


def test_an_optimizer_made_before_goes_on(net):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    convert(net)
    before = net.conv1.weight.detach().clone()
    net.train()(torch.randn(2, 3, 16, 16)).sum().backward()
    optimizer.step()
    assert not torch.equal(net.conv1.weight, before)


def test_hooks_stay(net):
    seen = []
    net.conv1.register_forward_hook(lambda module, inputs, output: seen.append(type(module)))
    convert(net)
    net(torch.randn(1, 3, 16, 16))
    assert seen == [Conv2d]


def test_the_inner_product_changes_nothing(net):
    x = torch.randn(2, 3, 16, 16)
    before = net(x)
    convert(net, magnitude=magnitudes.InnerProduct())
    assert torch.equal(net(x), before)


@pytest.mark.parametrize(
    ("layers", "converted"),
    [(["layer1.0.*"], 3), ([nn.Linear], 1), ([lambda name, module: "conv1" in name], 3), (None, 8)],
)
def test_selection(net, layers, converted):
    report = get_change_report(convert(net, only=layers))
    assert len(report.changed) == converted
    assert len(report.skipped) == 8 - converted
    assert set(report.skipped.values()) <= {"not named in only"}


def test_new_parameters_are_reported_and_separate_for_each_layer(net):
    report = get_change_report(
        convert(
            net,
            magnitude=magnitudes.Ball(),
            angular=angular.Sigmoid(learnable="filter"),
            only=["conv1", "fc"],
        )
    )
    assert report.new_parameters == [
        f"{layer}.{what}" for layer in ("conv1", "fc") for what in ("magnitude.radius.log_rho", "angular.log_k")
    ]
    assert set(report.new_parameters) <= {name for name, _ in net.named_parameters()}
    assert "parameter to give to the optimizer" in str(report)


def test_the_report_is_a_table(net):
    lines = str(get_change_report(convert(net, skip=[nn.Linear]))).splitlines()
    assert len(lines) == 8
    assert lines[0].split() == ["conv1", "changed", "Conv2d", *["with", "magnitude", "Sphere,", "angle", "Cosine"]]
    assert lines[-1].split() == ["fc", "skipped", "named", "in", "skip"]


class Conv1D(nn.Module):
    """GPT-2's linear layer in transformers, whose weight is transposed: one neuron per column."""

    def __init__(self, nf, nx):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(nx, nf)), nn.Parameter(torch.zeros(nf))

    def forward(self, x):
        return x @ self.weight + self.bias


def test_everything_left_out_is_named_with_its_reason():
    net = nn.ModuleDict(
        {
            "attention": nn.MultiheadAttention(4, 2),
            "other": nn.MultiheadAttention(4, 2, kdim=3, vdim=5),
            "gpt": Conv1D(6, 4),
            "words": nn.Embedding(7, 4),
            "memory": nn.GRUCell(4, 4),
            "fc": nn.Linear(4, 4),
        }
    )
    net.register_parameter("position", nn.Parameter(torch.zeros(1, 3, 4)))
    report = get_change_report(convert(net, attention=None))
    assert list(report.changed) == ["fc"]
    assert "neurons as columns" in report.skipped["gpt"]
    own = "MultiheadAttention uses it in a forward of its own"
    assert report.skipped["attention.in_proj_weight"] == own
    assert {report.skipped[f"other.{part}_proj_weight"] for part in "qkv"} == {own}
    assert {"attention.out_proj", "words", "memory.weight_ih", "memory.weight_hh", "position"} <= set(report.skipped)


def test_the_model_itself():
    layer = nn.Linear(3, 4)
    assert "(the model)" in str(get_change_report(convert(layer)))
    assert type(layer) is Linear


def test_a_transformer_is_converted_as_a_whole():
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0), 2).eval()
    x = torch.randn(2, 5, 8)
    with torch.no_grad():
        before = encoder(x)
        report = get_change_report(convert(encoder))
        parts = ("linear1", "linear2", "self_attn", "self_attn.out_proj")
        assert sorted(report.changed) == [f"layers.{i}.{part}" for i in range(2) for part in parts]
        assert report.skipped == {}
        assert report.new_parameters == [f"layers.{i}.self_attn.log_scale" for i in range(2)]
        fast = encoder(x)
    slow = encoder(x)  # with gradients torch never takes its fused kernel
    assert not torch.allclose(slow, before, atol=1e-3)
    assert torch.allclose(fast, slow, atol=1e-5)
    restore(encoder)
    assert encoder.layers[0].activation_relu_or_gelu == 1
    with torch.no_grad():
        assert torch.equal(encoder(x), before)


def test_a_transformer_with_a_padding_mask():
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0), 1).eval()
    x, mask = torch.randn(2, 5, 8), torch.zeros(2, 5, dtype=torch.bool)
    mask[1, 3:] = True
    convert(encoder)
    with torch.no_grad():
        fast = encoder(x, src_key_padding_mask=mask)
    assert torch.allclose(fast[0], encoder(x[:1])[0], atol=1e-5)


class GCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = GCNConv(4, 8), GCNConv(8, 3)

    def forward(self, x, edges):
        return self.conv2(F.relu(self.conv1(x, edges)), edges)


def test_a_graph_network_of_another_library():
    net, edges = GCN(), torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
    x = torch.randn(4, 4)
    before = net(x, edges)
    report = get_change_report(convert(net))
    assert sorted(report.changed) == ["conv1.lin", "conv2.lin"]
    assert isinstance(net.conv1.lin, GeometricLinear)
    aggregated = GCNConv(4, 8)
    aggregated.load_state_dict(net.conv1.state_dict())
    hidden = Linear(4, 8, bias=False)
    hidden.weight.data = net.conv1.lin.weight.data
    assert torch.allclose(net.conv1.lin(x), hidden(x), atol=1e-6)
    assert torch.equal(copy.deepcopy(net)(x, edges), net(x, edges))
    restore(net)
    assert torch.equal(net(x, edges), before)


def test_parametrized_layers_are_left_and_said_so():
    net = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(3, 4)), nn.Linear(4, 2))
    report = get_change_report(convert(net))
    assert "parametrized" in report.skipped["0"]
    nn.utils.parametrizations.orthogonal(net[1])
    assert "remove the parametrization first" in get_change_report(restore(net)).skipped["1"]
    nn.utils.parametrize.remove_parametrizations(net[1], "weight")
    assert list(get_change_report(restore(net)).changed) == ["1"]


def test_an_impossible_conversion_is_an_error_and_changes_nothing():
    with pytest.raises(ValueError, match=r"no layer of Sequential was converted"):
        convert(nn.Sequential(nn.ReLU()))
    net = nn.Sequential(nn.Linear(3, 4))
    with pytest.raises(ValueError, match="no module of Sequential is called 'fc'"):
        convert(net, skip=["fc"])
    convert(net)
    with pytest.raises(ValueError, match="already an operator"):
        convert(net)


@pytest.mark.untyped
def test_a_wrong_magnitude_leaves_the_class():
    layer = nn.Linear(3, 4)
    with pytest.raises(ValueError, match="magnitude must be an object of"):
        convert(layer, magnitude="tanh")
    assert type(layer) is nn.Linear
