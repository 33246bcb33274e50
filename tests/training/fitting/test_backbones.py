import json
import sys
import types

import pytest
import torch
from torch import nn

from hypersphere.config import call
from hypersphere.data import PicturePreprocessing
from hypersphere.models import TransformersNetwork, sphereface4, timm_network
from hypersphere.recognition import Embedder
from hypersphere.training.fitting.backbones import (
    find_backbone,
    has_folder_weights,
    read_processor,
    read_trained_backbone,
)

VIT = {
    "model_type": "vit",
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "image_size": 16,
    "patch_size": 8,
}


@pytest.fixture
def vit(tmp_path):
    """Write the folder of a small transformers model with its processor."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    values = {key: value for key, value in VIT.items() if key != "model_type"}
    transformers.ViTModel(transformers.ViTConfig(**values)).save_pretrained(tmp_path / "vit")
    processor = {"size": {"height": 16, "width": 16}, "resample": 3, "image_mean": [0.5] * 3, "image_std": [0.25] * 3}
    (tmp_path / "vit" / "preprocessor_config.json").write_text(json.dumps(processor))
    return tmp_path / "vit"


def timm(monkeypatch, names=("tiny",)):
    """Replace the package by a stand-in."""
    module = types.ModuleType("timm")
    module.is_model = lambda name: name in names

    def create_model(name, pretrained, num_classes, in_chans):
        if name not in names:
            raise RuntimeError(f"Unknown model ({name})")
        assert not pretrained
        assert num_classes == 0
        return nn.Sequential(nn.Conv2d(in_chans, 6, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())

    module.create_model = create_model
    monkeypatch.setitem(sys.modules, "timm", module)


def test_own_networks_and_callables():
    assert find_backbone("sphereface4").name == "sphereface4"
    assert find_backbone("torch.nn:Flatten").target is nn.Flatten
    with pytest.raises(ValueError, match="cannot be imported"):
        find_backbone("nowhere.at.all:net")


def test_a_folder_of_transformers(vit):
    call = find_backbone(str(vit))
    assert call.target is TransformersNetwork
    assert call.build()(torch.zeros(2, 3, 16, 16)).shape == (2, 16)
    assert find_backbone(str(vit / "config.json")).build()(torch.zeros(1, 3, 16, 16)).shape == (1, 16)
    assert read_processor(str(vit)) == PicturePreprocessing(
        size=(16, 16), channels=3, mean=(0.5,) * 3, std=(0.25,) * 3, interpolation="bicubic"
    )
    assert has_folder_weights(str(vit))
    assert not has_folder_weights(str(vit / "config.json"))


def test_processors_that_crop(tmp_path):
    file = tmp_path / "preprocessor_config.json"
    assert read_processor(str(tmp_path)) is None
    given = {"size": {"shortest_edge": 20}, "crop_size": {"height": 16, "width": 16}, "do_center_crop": True}
    file.write_text(json.dumps(given | {"do_normalize": False}))
    found = read_processor(str(tmp_path))
    assert (found.size, found.resize, found.mean, found.std) == ((16, 16), "cover", 0.0, 1.0)
    file.write_text('{"size": {"height": 3}}')
    with pytest.raises(ValueError, match="does not say how images are prepared"):
        read_processor(str(tmp_path))


def test_configurations_that_are_none(tmp_path):
    with pytest.raises(ValueError, match="there is no file"):
        find_backbone(str(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ValueError, match="it has no model_type"):
        find_backbone(str(tmp_path))
    (tmp_path / "config.json").write_text("no")
    with pytest.raises(ValueError, match="is not JSON"):
        find_backbone(str(tmp_path))


def test_names_of_timm(monkeypatch):
    timm(monkeypatch)
    found = find_backbone("tiny")
    assert found.target is timm_network
    assert found.build(in_channels=1)(torch.zeros(2, 1, 8, 8)).shape == (2, 6)
    with pytest.raises(ValueError, match="timm has no model 'other'"):
        timm_network("other")
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(ValueError, match="timm, whose model names are accepted too, is not installed"):
        find_backbone("tiny")


def test_weights_of_an_embedder_bring_their_backbone(tmp_path):
    network = call(sphereface4, width=0.1, feature_dim=8, in_channels=1, input_size=(16, 16))
    Embedder(network.build(), PicturePreprocessing(size=(16, 16), channels=1), network).save(
        tmp_path / "embedder.safetensors"
    )
    for weights in (tmp_path, tmp_path / "embedder.safetensors"):
        backbone, preprocessing = read_trained_backbone(weights)
        assert (backbone.target, backbone.arguments) == (sphereface4, {"width": 0.1, "feature_dim": 8})
        assert preprocessing.size == (16, 16)
    assert read_trained_backbone(tmp_path / "absent.pt") is None
