import json

import numpy as np
import pytest
import torch

from hypersphere.data import AudioPreprocessing, DataError, InMemory, Record, UnusableSampleError, open_source
from hypersphere.training import Choice, Run
from hypersphere.training.datasets import WindowSamples, average_windows, embed_with, read_samples
from hypersphere.training.fitting.run import (
    MAX_TRAINING_WINDOWS,
    cut_training_windows,
    describe_report,
    draw_report,
    draw_samples,
    prepare_source,
    read_report,
    write_features,
)
from tests.data.voices import voice, write_people

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


SHORT = AudioPreprocessing(frames=50, step=25, bands=16, trim=None)


@pytest.fixture
def people(tmp_path):
    return open_source(write_people(tmp_path / "people", people=2, takes=3))


def test_windows_are_those_of_the_preprocessing(people):
    ready = prepare_source(people, SHORT, "raise")
    assert len(ready.windows) == 6
    assert not ready.unusable
    torch.testing.assert_close(ready.windows[4], SHORT.load_windows(people.sample(4)))


def test_a_silent_recording_stops_or_is_left_out(tmp_path):
    soundfile = pytest.importorskip("soundfile")
    folder = write_people(tmp_path / "people", people=2, takes=3)
    soundfile.write(folder / "person1" / "1.wav", np.zeros(16000, dtype=np.float32), 16000)
    source = open_source(folder)
    with pytest.raises(DataError, match=r"1\.wav: .*silent.*on_error=skip"):
        prepare_source(source, SHORT, "raise")
    ready = prepare_source(source, SHORT, "skip")
    assert [record.name for record in ready.source.records] == [
        record.name for record in source.records if not record.name.endswith("person1/1.wav")
    ]
    (name,) = ready.unusable
    assert name.endswith("1.wav")
    assert "silent" in ready.unusable[name]
    assert len(ready.windows) == len(ready.source) == 5


def test_what_holds_nothing_is_always_left_out(people):
    class Faces(AudioPreprocessing):
        def load_all(self, sample, box=None, choose="all"):
            if sample.samples[100, 0] == people.sample(0).samples[100, 0]:
                raise UnusableSampleError("no face was found")
            return super().load_all(sample, box, choose)

    ready = prepare_source(people, Faces(frames=50, step=25, bands=16), "raise")
    assert len(ready.source) == 5
    assert list(ready.unusable.values()) == ["no face was found"]


def test_nothing_usable_is_an_error(people):
    with pytest.raises(DataError, match=r"none of the 6 samples of .* is usable: .*too short"):
        prepare_source(people, AudioPreprocessing(min_seconds=60), "skip")


def test_training_windows_are_longer_and_limited(tmp_path):
    soundfile = pytest.importorskip("soundfile")
    folder = write_people(tmp_path / "people", people=2, takes=2)
    soundfile.write(folder / "person0" / "long.wav", np.tile(voice(0), 20), 16000)
    found = cut_training_windows(open_source(folder), SHORT)
    counts = found.labels.bincount().tolist()
    assert found.data.shape[1] > SHORT.shape[0]
    assert counts[0] == MAX_TRAINING_WINDOWS + 2 * counts[1] // 2
    assert found.classes == ("person0", "person1")


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
