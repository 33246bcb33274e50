import json

import numpy as np
import pytest
import torch

from hypersphere.data import InMemory, Record
from hypersphere.training import Choice, Run
from hypersphere.training.datasets import WindowSamples, average_windows, embed_with, read_samples
from hypersphere.training.fitting.run import (
    describe_report,
    draw_report,
    draw_samples,
    read_report,
    write_features,
)

LABELS = torch.arange(6).repeat_interleave(5)


def written(folder, category=None):
    torch.manual_seed(0)
    features = torch.eye(6)[LABELS] + 0.5 * torch.randn(30, 6)
    records = [Record(f"{i}.png", f"id{label}", category=category) for i, label in enumerate(LABELS.tolist())]
    write_features(folder / "held_out.safetensors", features, LABELS, records)
    return read_report(folder / "held_out.safetensors"), records


def test_the_report_is_read_from_features(tmp_path):
    report, records = written(tmp_path)
    samples = InMemory(torch.zeros(30, 1, 8, 8, dtype=torch.uint8), LABELS, [f"id{i}" for i in range(6)])
    described = describe_report(report, torch.zeros(30, 6), samples, records)
    content = json.loads(json.dumps(described, allow_nan=False))
    assert content["figures"]["EER"]["value"] == float(report.eer)
    assert content["held_out"] == [f"id{i}" for i in range(6)]
    first = content["worst pairs"]["false accepts"][0]
    assert first["score"] == round(report.worst_pairs()[0].scores[0].item(), 6)
    assert first["first"].endswith(".png")
    assert {"identity", "taken for", "times"} == set(content["confused"][0])
    assert content["curves"]["roc"]["far"]


def test_categories_of_a_table_are_measured(tmp_path):
    report, _ = written(tmp_path, category="camera")
    assert [category.name for category in report.categories] == ["camera"]


def test_pictures_are_drawn(tmp_path):
    report, records = written(tmp_path)
    samples = InMemory(torch.randint(0, 256, (30, 1, 8, 8), dtype=torch.uint8), LABELS, [f"id{i}" for i in range(6)])
    names = draw_report(report, samples, records, tmp_path / "pictures")
    assert set(names) == {"roc.png", "worst_different.png", "worst_same.png", "confused.png"}
    for name in names:
        assert (tmp_path / "pictures" / name).read_bytes()[:4] == b"\x89PNG"


def test_a_run_is_read_from_its_folder(fitted):
    run, _ = fitted
    again = Run(run.folder)
    assert again.metrics == json.loads(json.dumps(again.report.numbers()))
    assert all(isinstance(choice, Choice) for choice in again.choices)
    assert again.check["images"] == 72
    assert len(again.embedder(torch.zeros(2, 1, 16, 16, dtype=torch.uint8))) == 2
    assert repr(again) == f"Run({str(run.folder)!r})"


def test_another_folder_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"holds no finished fit: there is no report.json in it"):
        Run(tmp_path)


def test_features_of_windows_are_averaged_by_direction():
    windows = [torch.tensor([[1.0, 0.0], [0.0, 5.0]]), torch.tensor([[3.0, 4.0]])]
    samples = WindowSamples(windows, torch.tensor([0, 1]), ("ann", "bob"), lambda x: x[:, None, None].byte())
    index = torch.tensor([1, 0])
    found = embed_with(lambda x: 2 * x, samples)(read_samples(samples, index))
    np.testing.assert_allclose(found.numpy(), [[0.6, 0.8], [0.5**0.5, 0.5**0.5]], rtol=1e-6)
    np.testing.assert_allclose(average_windows(lambda x: x, windows, 1).numpy(), found.flip(0).numpy(), rtol=1e-6)
    assert samples.batch(index)[0].tolist() == [[3.0, 4.0], [0.0, 5.0]]
    assert draw_samples(samples, index).shape == (2, 1, 1, 2)
    central = samples.with_central_windows()
    function = lambda x: x
    assert embed_with(function, central) is function
    assert torch.equal(read_samples(central, index), samples.batch(index)[0])
