import json
import sys
import types

import numpy as np
import pytest
import torch
from PIL import Image

import hypersphere as hs
from hypersphere.recognition import write_hub_folder
from hypersphere.recognition.loading import PRETRAINED, list_shipped
from tests.recognition.drawn import picture, small_embedder


def test_files_and_folders(tmp_path):
    small_embedder().save(tmp_path / "embedder.safetensors")
    for name in (tmp_path / "embedder.safetensors", str(tmp_path)):
        assert hs.load(name).fingerprint == small_embedder().fingerprint


def test_every_kind_of_image_gives_the_same_features(tmp_path):
    small_embedder().save(tmp_path / "e.safetensors")
    embedder = hs.load(tmp_path / "e.safetensors", device="cpu")
    array = picture(1, 2)
    Image.fromarray(array).save(tmp_path / "a.png")
    tensor = torch.from_numpy(array)[None]
    kinds = [tmp_path / "a.png", str(tmp_path / "a.png"), Image.fromarray(array), array, tensor, tensor / 255]
    features = embedder(kinds, batch=4)
    assert features.shape == (6, 8)
    torch.testing.assert_close(features, embedder(tensor[None]).expand(6, -1))


def test_characters_work_offline():
    embedder = hs.load("characters")
    assert (PRETRAINED / "characters.safetensors").stat().st_size <= 2_000_000
    page = np.full((105, 105), 255, dtype=np.uint8)
    drawn = page.copy()
    drawn[20:85, 48:56] = 0  # a stroke, then the same stroke shifted, then another character
    moved, other = np.roll(drawn, 4, 1), page.copy()
    other[20:28, 20:85] = other[20:85, 20:28] = other[77:85, 20:85] = 0
    features = torch.nn.functional.normalize(embedder([drawn, moved, other]))
    same, different = float(features[0] @ features[1]), float(features[0] @ features[2])
    assert same > 0.6 > different
    assert embedder.card["licence"].startswith("MIT")
    assert "659" in json.dumps(embedder.card, ensure_ascii=False)


def test_a_hub_id_is_downloaded(tmp_path, monkeypatch):
    folder = write_hub_folder(small_embedder(), tmp_path / "stored", licence="mit")
    asked = []

    def snapshot_download(name, **options):
        asked.append((name, options["revision"]))
        if name == "me/absent":
            raise OSError("404\nmore")
        return str(folder)

    stand_in = types.ModuleType("huggingface_hub")
    stand_in.snapshot_download = snapshot_download
    monkeypatch.setitem(sys.modules, "huggingface_hub", stand_in)
    assert hs.load("me/mine", revision="v1").fingerprint == small_embedder().fingerprint
    assert asked == [("me/mine", "v1")]
    with pytest.raises(
        ValueError, match=r"me/absent is not a file or folder, and cannot be downloaded from the hub: 404$"
    ):
        hs.load("me/absent")


def test_a_config_that_says_otherwise_is_refused(tmp_path):
    folder = write_hub_folder(small_embedder(), tmp_path, licence="mit")
    config = json.loads((folder / "config.json").read_text())
    config["preprocessing"]["mean"] = 0.1
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="differ in preprocessing"):
        hs.load(folder)
    (folder / "config.json").write_text("{")
    with pytest.raises(ValueError, match="not readable JSON"):
        hs.load(folder)


def test_refuses(tmp_path):
    with pytest.raises(ValueError, match=r"there is no embedder nowhere: .* pretrained model \(characters, sface"):
        hs.load("nowhere")
    with pytest.raises(ValueError, match=r"there is no embedder a/b\.safetensors"):
        hs.load("a/b.safetensors")
    with pytest.raises(ValueError, match=r"holds no embedder: neither embedder\.safetensors nor model\.safetensors"):
        hs.load(tmp_path)
    (tmp_path / "x.safetensors").write_text("text")
    with pytest.raises(ValueError, match="is not a safetensors file, or is damaged"):
        hs.load(tmp_path / "x.safetensors")
    assert list_shipped() == ("characters",)
