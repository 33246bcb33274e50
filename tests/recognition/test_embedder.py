import json
import pickle
import subprocess
import sys

import numpy as np
import pytest
import safetensors.torch
import torch
from PIL import Image
from safetensors import safe_open
from torch import nn

from hypersphere.angular import Sigmoid
from hypersphere.config import call, remove_locations
from hypersphere.config.names import ALIASES
from hypersphere.data import PicturePreprocessing, Preprocessing
from hypersphere.models import cnn3
from hypersphere.operators import Operator, magnitudes
from hypersphere.recognition import Embedder
from hypersphere.recognition.embedder import FORMAT, _NoDraws, _seal, build_network, read_file

from .small_networks import COLUMNS, ROWS, Tiny, small_cnn, small_embedder

SIZE = PicturePreprocessing((ROWS, COLUMNS), 1)


def images(count=3, channels=1, seed=0):
    size = (count, channels, ROWS, COLUMNS)
    return torch.randint(0, 256, size, generator=torch.Generator().manual_seed(seed)).to(torch.uint8)


def tanh(k):
    return call(Operator, magnitude=call(magnitudes.Tanh, radius=2.0), angular=call(Sigmoid, k=k))


def write(path, content, tensors, sha256=None):
    header = {"sha256": sha256 or _seal(content, tensors)[0], "content": content}
    safetensors.torch.save_file(tensors, path, {FORMAT: json.dumps(header)})


def test_an_embedder_comes_back(tmp_path):
    embedder = small_embedder(seed=7)
    embedder.save(tmp_path / "e.safetensors", card={"steps": 3})
    loaded = Embedder.load(tmp_path / "e.safetensors")
    assert loaded.preprocessing == SIZE
    assert loaded.fingerprint == embedder.fingerprint
    assert loaded.card == {"steps": 3}
    assert loaded.call == embedder.call
    pixels = images()
    assert torch.equal(loaded(pixels), embedder(pixels))
    expected = embedder.network((pixels.float() - 127.5) / 128)  # the normalization of Liu (2020, 2.3)
    torch.testing.assert_close(loaded(pixels), expected)
    loaded.save(tmp_path / "again.safetensors")
    assert Embedder.load(tmp_path / "again.safetensors").fingerprint == embedder.fingerprint
    assert all(parameter.requires_grad for parameter in loaded.network.parameters())


def test_an_operator_comes_back_as_itself(tmp_path):
    network, made = small_cnn(operator=tanh(0.3))
    embedder = Embedder(network, SIZE, made)
    embedder.save(tmp_path / "e")
    assert torch.equal(Embedder.load(tmp_path / "e")(images()), embedder(images()))


def test_a_call_that_builds_another_network_writes_no_file(tmp_path):
    network, made = small_cnn(operator=tanh(0.3))
    wrong = made.replace(operator=tanh(0.5))  # parameters have the same names and shapes
    with pytest.raises(ValueError, match="computes other features: its constructor call must be incomplete"):
        Embedder(network, SIZE, wrong).save(tmp_path / "e")
    with pytest.raises(ValueError, match="tensors differ from those of cnn3"):
        Embedder(network, SIZE, made.replace(operator=None)).save(tmp_path / "e")
    assert not list(tmp_path.iterdir())


def test_what_the_tensors_do_not_tell_is_compared(tmp_path):
    with pytest.raises(ValueError, match="computes other features"):
        Embedder(Tiny(noise=0.5), SIZE, call(Tiny)).save(tmp_path / "e")
    Embedder(Tiny(noise=0.5), SIZE, call(Tiny, noise=0.5)).save(tmp_path / "e")
    assert Embedder.load(tmp_path / "e", trust=True).network.noise == 0.5


def test_ones_own_network_is_imported_only_if_trusted(tmp_path):
    embedder = Embedder(Tiny(), SIZE, call(Tiny))
    embedder.save(tmp_path / "e")
    with pytest.raises(ValueError, match=r"small_networks:Tiny', code outside hypersphere.*trust"):
        Embedder.load(tmp_path / "e")
    assert torch.equal(Embedder.load(tmp_path / "e", trust=True)(images()), embedder(images()))


@pytest.mark.parametrize("of_file", [False, True])
def test_paths_images_arrays_tensors_and_lists_give_the_same(of_file, tmp_path):
    embedder = small_embedder(channels=3)
    if of_file:
        embedder.save(tmp_path / "e")
        embedder = Embedder.load(tmp_path / "e")
    pixels = np.random.default_rng(0).integers(0, 256, (20, 11, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "i.png")
    tensor = torch.from_numpy(pixels).permute(2, 0, 1)
    expected = embedder(tmp_path / "i.png")
    assert expected.shape == (1, 5)
    for same in (str(tmp_path / "i.png"), Image.fromarray(pixels), pixels, tensor, tensor[None], [pixels]):
        assert torch.equal(embedder(same), expected)
    several = embedder([tmp_path / "i.png", pixels, tensor], batch=2)
    torch.testing.assert_close(several, expected.expand(3, -1))


def test_pixels_in_unit_range_are_taken_too():
    embedder = small_embedder()
    pixels = images()
    torch.testing.assert_close(embedder(pixels / 255), embedder(pixels), rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match="at least one image, got none"):
        embedder([])
    with pytest.raises(ValueError, match="batch must be an integer ≥ 1, got 0"):
        embedder(pixels, batch=0)


def test_mirror_images_are_appended(tmp_path):
    embedder = small_embedder(mean=0.0, std=1.0, mirror=True)
    embedder.save(tmp_path / "e")
    x = images() / 255
    expected = torch.cat([embedder.network(x), embedder.network(x.flip(-1))], 1)
    torch.testing.assert_close(Embedder.load(tmp_path / "e")(images()), expected)


def test_a_fingerprint_covers_arguments_preprocessing_names_dtypes_shapes_and_values():
    first = small_embedder().fingerprint
    assert len(first) == 64
    assert small_embedder().train().fingerprint == first
    assert small_embedder().double().fingerprint != first
    assert small_embedder(mirror=True).fingerprint != first
    assert small_embedder(seed=1).fingerprint != first
    network, made = small_cnn()
    next(iter(network.buffers()))[0] += 1e-6
    assert Embedder(network, SIZE, made).fingerprint != first
    network, made = small_cnn()
    assert Embedder(network, SIZE, made).fingerprint == first
    assert Embedder(network, SIZE, made.replace(activation="relu")).fingerprint != first


class Moved(Tiny):
    """The same network, defined in another module."""


def test_a_fingerprint_does_not_depend_on_where_a_class_lives_or_on_its_newest_name(monkeypatch):
    network = Tiny()
    moved = Moved()
    moved.load_state_dict(network.state_dict())
    first, second = (Embedder(net, SIZE, call(kind)) for net, kind in ((network, Tiny), (moved, Moved)))
    assert first.fingerprint == second.fingerprint
    before = small_embedder().fingerprint
    monkeypatch.setitem(ALIASES, "former_name", small_embedder().call.name)
    assert small_embedder().fingerprint != before  # the hash now uses the former name
    content = {"call": "former_name"}
    assert remove_locations(content) == remove_locations({"call": small_embedder().call.name})


def test_the_mode_is_left_and_no_graph_is_kept():
    embedder = small_embedder().train()
    features = embedder(images())
    assert all(module.training for module in embedder.network.modules())
    assert not features.requires_grad


def test_a_classifier_gives_its_features_not_its_logits():
    class Classifier(nn.Module):
        def features(self, x):
            return x.flatten(1)

        def forward(self, x):
            return self.features(x)[:, :2]

    assert Embedder(Classifier(), PicturePreprocessing((2, 2), 1))(torch.rand(3, 1, 2, 2)).shape == (3, 4)


@pytest.mark.parametrize(
    "name", ["hidden", "__class__", "os.system", "cnn3.__globals__", "torch", "Linear", "Preprocessing", "he_normal"]
)
def test_only_the_exported_networks_can_be_named(tmp_path, name):
    tensors = {"x": torch.ones(1)}
    write(tmp_path / "e", {"network": {"call": name}, "preprocessing": {}}, tensors)
    with pytest.raises(ValueError, match=r"network must be one of .*cnn3.*, got"):
        Embedder.load(tmp_path / "e", trust=True)


def test_a_pickle_is_refused_and_never_run(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (open, (str(tmp_path / "exploded"), "w"))

    (tmp_path / "model.pt").write_bytes(pickle.dumps(Bomb()))
    torch.save({"a": torch.ones(2)}, tmp_path / "other.pt")
    for name in ("model.pt", "other.pt"):
        with pytest.raises(ValueError, match="is not a safetensors file, or is damaged"):
            Embedder.load(tmp_path / name, trust=True)
    assert not (tmp_path / "exploded").exists()


CNN = {"call": "cnn3", "num_classes": None, "widths": [4, 4, 4]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "does not contain the constructor call of its network"),
        ({"network": "cnn3"}, "does not contain the constructor call of its network"),
        ({"network": {"widths": [1]}}, "network must be"),
        ({"network": {**CNN, "wrong": 1}}, "there is no key network.wrong: cnn3 has"),
        ({"network": {**CNN, "widths": "wide"}}, "network.widths must be"),
        (
            {"network": CNN, "preprocessing": {"colour": 1}},
            "there is no key preprocessing.colour: PicturePreprocessing has size",
        ),
        ({"network": CNN, "preprocessing": {"size": [10**9, 1]}}, "size must be"),
        ({"network": CNN, "preprocessing": {}}, "the tensors of .* do not fit its network"),
        ({"network": {**CNN, "widths": [10**9, 4, 4]}}, "the tensors of .* do not fit its network"),
    ],
)
def test_refuses_files(tmp_path, content, message):
    write(tmp_path / "e", content, {"x": torch.ones(1)})
    with pytest.raises(ValueError, match=message):
        Embedder.load(tmp_path / "e")


def test_what_builds_no_network_is_refused(tmp_path):
    named = "tests.recognition.small_networks:no_network"
    write(tmp_path / "e", {"network": {"call": named}, "preprocessing": {}}, {"x": torch.ones(1)})
    with pytest.raises(ValueError, match="no_network must build a module, got int"):
        Embedder.load(tmp_path / "e", trust=True)


def test_a_changed_file_is_refused(tmp_path):
    embedder = small_embedder()
    embedder.save(tmp_path / "e")
    header, tensors = read_file(tmp_path / "e", FORMAT)
    changed = {**tensors, next(iter(tensors)): next(iter(tensors.values())) + 1}
    write(tmp_path / "changed", header["content"], changed, sha256=header["sha256"])
    with pytest.raises(ValueError, match="is damaged: its checksum does not match its content"):
        Embedder.load(tmp_path / "changed")
    infinite = {**tensors, next(iter(tensors)): next(iter(tensors.values())) * torch.inf}
    write(tmp_path / "infinite", header["content"], infinite)
    with pytest.raises(ValueError, match="must be finite, got NaN or infinity"):
        Embedder.load(tmp_path / "infinite")
    safetensors.torch.save_file(tensors, tmp_path / "other", {"format": "pt"})
    with pytest.raises(ValueError, match=f"must be a file of format {FORMAT}, got format format"):
        Embedder.load(tmp_path / "other")
    with pytest.raises(ValueError, match="there is no file"):
        Embedder.load(tmp_path / "missing")


def test_refuses_to_save(tmp_path):
    network, made = small_cnn()
    with pytest.raises(ValueError, match="cannot be saved without the constructor call"):
        Embedder(network, SIZE).save(tmp_path / "e")
    with pytest.raises(ValueError, match="a config holds numbers, text, lists and calls, got function"):
        Embedder(network, SIZE, made.replace(init=lambda weight: weight)).save(tmp_path / "e")
    next(network.parameters()).data[0] = torch.nan
    with pytest.raises(ValueError, match="weights must be finite, got NaN or infinity"):
        Embedder(network, SIZE, made).save(tmp_path / "e")
    assert not list(tmp_path.iterdir())


def test_the_file_holds_tensors_and_json_alone(tmp_path):
    small_embedder().save(tmp_path / "e")
    with safe_open(tmp_path / "e", framework="pt") as file:
        assert list(file.metadata()) == [FORMAT]
        content = json.loads(file.metadata()[FORMAT])["content"]
    assert content["network"]["call"] == "cnn3"
    assert Preprocessing.from_dict(content["preprocessing"]) == SIZE


def test_from_call_compares_names_and_shapes():
    network, made = small_cnn()
    again = Embedder.from_call(made, network.state_dict(), SIZE)
    assert torch.equal(again(images()), Embedder(network, SIZE)(images()))
    with pytest.raises(ValueError, match="tensors differ from those of cnn3"):
        Embedder.from_call(call(cnn3, num_classes=None), network.state_dict(), SIZE)


def test_an_build_network_takes_the_tensors():
    network, made = small_cnn()
    state = network.state_dict()
    again = build_network(made, state).eval()
    x = torch.randn(2, 1, ROWS, COLUMNS)
    assert torch.equal(again(x), network(x))


class Buffered(nn.Module):
    """Has a tensor outside of its state dict, so no file can restore it."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.register_buffer("scale", torch.full((2,), 3.0), persistent=False)

    def forward(self, x):
        return self.linear(x) * self.scale


def test_what_the_state_does_not_hold_is_built():
    network = Buffered()
    again = build_network(call(Buffered), network.state_dict())
    assert torch.equal(again(torch.ones(1, 2)), network(torch.ones(1, 2)))


def test_other_names_or_shapes_are_refused_before_anything_is_allocated():
    network, _ = small_cnn()
    with pytest.raises(ValueError, match=r"\d+ tensors differ from those of cnn3, the first is .* instead of"):
        build_network(call(cnn3, num_classes=None, widths=(10**9, 4, 4)), network.state_dict())
    with pytest.raises(ValueError, match=r"cnn3 cannot be built"):
        build_network(call(cnn3, num_classes=None, widths=(10**18, 10**18, 4)), network.state_dict())


def test_a_network_without_memory_draws_nothing_and_others_do():
    with torch.device("meta"), _NoDraws():
        layer = nn.Linear(3, 2)
        real = torch.empty(1000, device="cpu").normal_()
    assert layer.weight.is_meta
    assert 0.8 < real.std() < 1.2


def test_an_build_network_does_not_import_the_compiler():
    code = (
        "import sys, torch; from hypersphere import models; from hypersphere.config.calls import Call\n"
        "from hypersphere.recognition.embedder import build_network\n"
        "made = Call(models.cnn3, {'num_classes': None, 'width': 0.125})\n"
        "build_network(made, made.build().state_dict()); print('torch._dynamo' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
