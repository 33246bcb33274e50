"""State dicts of insightface, made from tables of names and shapes, and an independent forward pass."""

import pytest
import torch
import torch.nn.functional as F

from hypersphere.models import IResNet, MobileFaceNet, read_insightface


def add_norm(state, name, channels):
    state[f"{name}.weight"], state[f"{name}.bias"] = torch.rand(channels) + 0.5, torch.randn(channels) / 10
    state[f"{name}.running_mean"], state[f"{name}.running_var"] = torch.randn(channels) / 10, torch.rand(channels) + 0.5
    state[f"{name}.num_batches_tracked"] = torch.tensor(7)


def add_conv(state, name, out, into, kernel):
    state[f"{name}.weight"] = torch.randn(out, into, kernel, kernel) / (into * kernel * kernel) ** 0.5


def add_slopes(state, name, channels):
    state[f"{name}.weight"] = torch.rand(channels) / 2


def make_iresnet_state(counts, feature_dim=8):
    """The tensors of ``iresnet.py`` in arcface_torch."""
    torch.manual_seed(0)
    state, channels = {}, 64
    add_conv(state, "conv1", 64, 3, 3)
    add_norm(state, "bn1", 64)
    add_slopes(state, "prelu", 64)
    for i, (count, width) in enumerate(zip(counts, (64, 128, 256, 512), strict=True)):
        for j in range(count):
            block = f"layer{i + 1}.{j}"
            add_norm(state, f"{block}.bn1", channels)
            add_conv(state, f"{block}.conv1", width, channels, 3)
            add_norm(state, f"{block}.bn2", width)
            add_slopes(state, f"{block}.prelu", width)
            add_conv(state, f"{block}.conv2", width, width, 3)
            add_norm(state, f"{block}.bn3", width)
            if j == 0:
                add_conv(state, f"{block}.downsample.0", width, channels, 1)
                add_norm(state, f"{block}.downsample.1", width)
            channels = width
    add_norm(state, "bn2", 512)
    state["fc.weight"], state["fc.bias"] = torch.randn(feature_dim, 512 * 49) / 160, torch.randn(feature_dim)
    add_norm(state, "features", feature_dim)
    return state


def make_mobile_state(blocks=(1, 4, 6, 2), scale=2, feature_dim=8):
    """The tensors of ``mobilefacenet.py`` in arcface_torch."""
    torch.manual_seed(0)
    state = {}

    def add_unit(name, out, into, kernel, slopes=True):
        add_conv(state, f"{name}.layers.0", out, into, kernel)
        add_norm(state, f"{name}.layers.1", out)
        if slopes:
            add_slopes(state, f"{name}.layers.2", out)

    def add_block(name, into, groups, out):
        add_unit(f"{name}.layers.0", groups, into, 1)
        add_unit(f"{name}.layers.1", groups, 1, 3)
        add_unit(f"{name}.layers.2", out, groups, 1, slopes=False)

    narrow, wide = 64 * scale, 128 * scale
    add_unit("layers.0", narrow, 3, 3)
    if blocks[0] == 1:
        add_unit("layers.1", narrow, scale, 3)
    for place, count, width, groups in ((1, blocks[0], narrow, 128), (3, blocks[1], narrow, 128)):
        for j in range(count if place > 1 or count > 1 else 0):
            add_block(f"layers.{place}.layers.{j}", width, groups, width)
    add_block("layers.2", narrow, 128, narrow)
    add_block("layers.4", narrow, 256, wide)
    add_block("layers.6", wide, 512, wide)
    for place, count in ((5, blocks[2]), (7, blocks[3])):
        for j in range(count):
            add_block(f"layers.{place}.layers.{j}", wide, 256, wide)
    add_unit("conv_sep", 512, wide, 1)
    add_unit("features.layers.0", 512, 1, 7, slopes=False)
    state["features.layers.2.weight"] = torch.randn(feature_dim, 512) / 20
    add_norm(state, "features.layers.3", feature_dim)
    return state


def norm(state, name, x):
    names = ("running_mean", "running_var", "weight", "bias")
    return F.batch_norm(x, *(state[f"{name}.{tensor}"] for tensor in names))


def compute_iresnet(state, x):
    x = F.prelu(norm(state, "bn1", F.conv2d(x, state["conv1.weight"], padding=1)), state["prelu.weight"])
    for i in (1, 2, 3, 4):
        j = 0
        while f"layer{i}.{j}.conv1.weight" in state:
            block, stride = f"layer{i}.{j}", 2 if j == 0 else 1
            y = F.conv2d(norm(state, f"{block}.bn1", x), state[f"{block}.conv1.weight"], padding=1)
            y = F.prelu(norm(state, f"{block}.bn2", y), state[f"{block}.prelu.weight"])
            y = norm(state, f"{block}.bn3", F.conv2d(y, state[f"{block}.conv2.weight"], stride=stride, padding=1))
            if j == 0:
                x = norm(state, f"{block}.downsample.1", F.conv2d(x, state[f"{block}.downsample.0.weight"], stride=2))
            x, j = x + y, j + 1
    return norm(state, "features", F.linear(norm(state, "bn2", x).flatten(1), state["fc.weight"], state["fc.bias"]))


def compute_mobile(state, x):
    def unit(name, x, stride=1, padding=0):
        weight = state[f"{name}.layers.0.weight"]
        groups = x.shape[1] // weight.shape[1]
        y = norm(state, f"{name}.layers.1", F.conv2d(x, weight, stride=stride, padding=padding, groups=groups))
        slopes = state.get(f"{name}.layers.2.weight")
        return y if slopes is None else F.prelu(y, slopes)

    def block(name, x, stride):
        y = unit(f"{name}.layers.1", unit(f"{name}.layers.0", x), stride, 1)
        return unit(f"{name}.layers.2", y) + (x if stride == 1 else 0)

    x = unit("layers.0", x, 2, 1)
    for place in range(1, 8):
        if f"layers.{place}.layers.0.weight" in state:
            x = unit(f"layers.{place}", x, 1, 1)
        elif place % 2 == 0:
            x = block(f"layers.{place}", x, 2)
        else:
            j = 0
            while f"layers.{place}.layers.{j}.layers.0.layers.0.weight" in state:
                x, j = block(f"layers.{place}.layers.{j}", x, 1), j + 1
    x = unit("features.layers.0", unit("conv_sep", x)).flatten(1)
    return norm(state, "features.layers.3", F.linear(x, state["features.layers.2.weight"]))


def write(tmp_path, state):
    torch.save(state, tmp_path / "backbone.pth")
    return tmp_path / "backbone.pth"


@pytest.mark.parametrize(
    ("state", "compute", "architecture", "settings"),
    [
        (lambda: make_iresnet_state((2, 2, 2, 2)), compute_iresnet, "iresnet18", {"depth": 18, "input_size": 112}),
        (make_mobile_state, compute_mobile, "mobilefacenet", {"blocks": (1, 4, 6, 2), "scale": 2}),
        (lambda: make_mobile_state((2, 3, 1, 2), 4), compute_mobile, "mobilefacenet", {"blocks": (2, 3, 1, 2)}),
    ],
)
def test_features_are_those_of_the_published_layers(state, compute, architecture, settings, tmp_path):
    made = state()
    network = read_insightface(write(tmp_path, made), architecture)
    assert settings.items() <= network.settings.items()
    x = torch.rand(2, 3, 112, 112) * 2 - 1
    with torch.no_grad():
        torch.testing.assert_close(network(x), compute(made, x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("depth", [18, 34, 50, 100, 200])
def test_every_depth_has_the_blocks_of_insightface(depth):
    """Numbers of parameters with 512 features, counted from the table of names."""
    counts = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 14, 3), 100: (3, 13, 30, 3), 200: (6, 26, 60, 6)}[depth]
    with torch.device("meta"):
        wanted = sum(
            value.numel()
            for key, value in make_iresnet_state(counts, 512).items()
            if not key.endswith(("running_mean", "running_var", "num_batches_tracked"))
        )
        assert sum(parameter.numel() for parameter in IResNet(depth).parameters()) == wanted


def test_a_training_checkpoint_in_half_precision_is_read(tmp_path):
    state = make_mobile_state()
    wrapped = {f"module.{key}": value.half() if value.is_floating_point() else value for key, value in state.items()}
    network = read_insightface(write(tmp_path, {"epoch": 3, "state_dict_backbone": wrapped}))
    assert isinstance(network, MobileFaceNet)
    assert not network.training
    torch.testing.assert_close(network.last.norm.weight, state["conv_sep.layers.1.weight"], rtol=1e-3, atol=0)


class Hostile:
    def __reduce__(self):
        return (print, ("executed",))


def without(state, key):
    return {name: value for name, value in state.items() if name != key}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"weight": Hostile()}, "is not a state dict that can be read without executing code"),
        ([1, 2], "must be a state dict, which maps names to tensors, got a list"),
        ({"weight": 3}, "must be a state dict"),
        (
            {"weight": torch.zeros(2)},
            "contains neither an iresnet nor a mobilefacenet of insightface: no known depth has",
        ),
        (without(make_mobile_state(), "features.layers.2.weight"), "there is no features.layers.2.weight"),
        (
            without(make_mobile_state(), "conv_sep.layers.2.weight"),
            "does not fit mobilefacenet: 1 tensor is missing, such as conv_sep.layers.2.weight",
        ),
        (
            {**make_mobile_state(), "head.weight": torch.zeros(1), "head.bias": torch.zeros(1)},
            "2 tensors are unexpected, such as head.weight",
        ),
        (
            {**make_mobile_state(), "layers.0.layers.1.bias": torch.zeros(5)},
            r"layers.0.layers.1.bias: \(5,\) instead of \(128,\)",
        ),
    ],
)
def test_other_files_end_in_one_sentence(content, message, tmp_path, capsys):
    with pytest.raises(ValueError, match=message) as caught:
        read_insightface(write(tmp_path, content))
    assert "\n" not in str(caught.value)
    assert "executed" not in capsys.readouterr().out


@pytest.mark.untyped
def test_wrong_arguments_end_in_one_sentence(tmp_path):
    path = write(tmp_path, make_mobile_state())
    with pytest.raises(
        ValueError, match=r"architecture must be 'mobilefacenet' for the tensors in .*, got 'iresnet50'"
    ):
        read_insightface(path, "iresnet50")
    with pytest.raises(ValueError, match=r"architecture must be one of iresnet18, .*, got 'vgg'"):
        read_insightface(path, "vgg")
    with pytest.raises(ValueError, match="there is no file"):
        read_insightface(tmp_path / "absent.pth")
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(ValueError, match="is not a state dict"):
        read_insightface(path)
