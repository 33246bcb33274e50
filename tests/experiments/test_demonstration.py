import json

import pytest
import torch
from safetensors.torch import load_file

from hypersphere.experiments import demonstration as demo


def test_one_epoch_writes_everything(tmp_path):
    seen = []
    results = demo.run(tmp_path, epochs=1, progress=lambda name, epoch: seen.append((name, epoch)))
    assert [r.name for r in results] == ["softmax", "SphereFace", "CosFace", "ArcFace"]
    assert seen == [(r.name, 0) for r in results]
    assert json.loads((tmp_path / "metrics.json").read_text())["CosFace"].keys() == demo.COLUMNS.keys()
    for picture in ("features.png", "angles.png", "training.png"):
        assert (tmp_path / picture).stat().st_size > 10_000
    state = load_file(tmp_path / "arcface" / "model.safetensors")
    assert torch.equal(state["classifier.weight"], results[3].head.weight)
    for result in results:
        assert 10 < result.row["accuracy"] <= 100
        assert len(result.history["energy"]) == 1


def test_the_seed_decides(tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "HEADS", {"softmax": demo.HEADS["softmax"]})
    first, second = (demo.run(tmp_path, epochs=1, seed=3)[0] for _ in range(2))
    assert torch.equal(first.features, second.features)


@pytest.mark.slow
def test_margins_tighten_classes_at_no_loss_of_accuracy(tmp_path):
    softmax, *margins = demo.run(tmp_path)
    for result in margins:
        assert result.row["intra"] < softmax.row["intra"]
        assert result.row["inter"] > softmax.row["inter"]
        assert result.row["accuracy"] > softmax.row["accuracy"] - 1  # 356 test digits: one is 0.28 %


def test_refuses():
    with pytest.raises(ValueError, match="epochs must be an integer ≥ 1"):
        demo.run(epochs=0)
