"""Fits with backbones from outside the library, and with frozen backbones."""

import pytest
import torch
from safetensors.torch import load_file

from hypersphere.recognition import Embedder
from hypersphere.training import fit

from .drawn import QUICK
from .test_backbones import timm, vit  # noqa: F401  (a fixture)

SHORT_RUN = ("steps=4", "pictures=false", "threads=1", "batch_size=16", "feature_dim=8", "last_layer=none")
ALONE = "networks=1"


def test_a_model_of_transformers_with_its_processor(vit, pictures, tmp_path):  # noqa: F811
    transformers = pytest.importorskip("transformers")
    run = fit(pictures, tmp_path / "run", settings=[f"backbone={vit}", *SHORT_RUN, "frozen=true"])
    loaded = Embedder.load(run.folder / "embedder.safetensors")
    assert loaded.preprocessing.std == (0.25,) * 3
    before = transformers.AutoModel.from_pretrained(vit).state_dict()
    after = load_file(run.folder / "embedder.safetensors")
    same = [torch.equal(tensor, after[f"network.model.{name}"]) for name, tensor in before.items()]
    assert all(same)
    assert after["projection.weight"].shape == (8, 16)


def test_a_model_of_timm(monkeypatch, pictures, tmp_path):
    timm(monkeypatch)
    run = fit(pictures, tmp_path / "run", settings=["backbone=tiny", ALONE, *SHORT_RUN])
    assert run.embedder.call.get("network").get("name") == "tiny"


def test_own_callable(pictures, tmp_path):
    run = fit(pictures, tmp_path / "run", settings=["backbone=torch.nn:Flatten", ALONE, *SHORT_RUN])
    assert run.embedder.call.get("in_features") == 256


def test_two_stages_and_rates(pictures, tmp_path):
    """The first stage trains only the layers after the convolutions."""
    few = [*(text for text in QUICK if "steps" not in text), "pictures=false", "ema=none", "layer_decay=0.7"]
    started = fit(pictures, tmp_path / "start", settings=[*few, "steps=1", "optimizer.lr=0"])
    first = load_file(started.folder / "model.safetensors")
    rested = fit(pictures, tmp_path / "rest", settings=[*few, "steps=4", "head_first=4"])
    whole = fit(pictures, tmp_path / "whole", settings=[*few, "steps=4", "head_first=2"])
    for name, tensor in load_file(rested.folder / "model.safetensors").items():
        if "running" not in name and "tracked" not in name:
            assert torch.equal(tensor, first[name]) == name.startswith("body."), name
    moved = load_file(whole.folder / "model.safetensors")
    name = next(name for name in moved if name.startswith("body.") and name.endswith("weight"))
    assert not torch.equal(moved[name], first[name])


def test_weights_of_another_run(fitted, pictures, tmp_path):
    run, _ = fitted
    few = [*QUICK, "steps=1", "ema=none", "pictures=false", f"weights={run.folder}"]
    again = fit(pictures, tmp_path / "run", settings=[*few, "optimizer.lr=0"])
    before, after = (load_file(r.folder / "model.safetensors") for r in (run, again))
    assert torch.equal(before["fc.0.linear.weight"], after["fc.0.linear.weight"])


@pytest.mark.parametrize("file", ["", "embedder.safetensors"])
def test_a_frozen_backbone_from_a_run_or_its_embedder(file, fitted, pictures, tmp_path):
    run, _ = fitted
    few = [
        *QUICK,
        "steps=2",
        "ema=none",
        "pictures=false",
        "last_layer=none",
        "frozen=true",
        f"weights={run.folder / file}",
    ]
    again = fit(pictures, tmp_path / "run", settings=few)
    before = load_file(run.folder / (file or "model.safetensors"))
    after = load_file(again.folder / "embedder.safetensors")
    prefix = "networks.0." if file else ""  # the embedder concatenates further networks and descriptors
    for name in ("body.stage1.0.conv.weight", "body.stage1.0.norm.running_mean", "fc.0.linear.weight"):
        assert torch.equal(before[prefix + name], after[f"network.{name}"])


def test_a_frozen_backbone_that_the_weights_do_not_fit_is_refused(fitted, pictures, tmp_path):
    run, _ = fitted
    few = [*QUICK, "size=20", "frozen=true", f"weights={run.folder}"]
    with pytest.raises(ValueError, match=r"frozen=true would keep 1 parts of the backbone at their random"):
        fit(pictures, tmp_path / "run", settings=few)
    assert not (tmp_path / "run").exists()
