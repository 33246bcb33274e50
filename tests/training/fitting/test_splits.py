import numpy as np
import pytest
import torch

from hypersphere.data import (
    ArraySource,
    AudioPreprocessing,
    DataError,
    InMemory,
    PicturePreprocessing,
    UnusableSampleError,
    open_source,
)
from hypersphere.training.fitting.settings import FitSettings
from hypersphere.training.fitting.splits import (
    MAX_TRAINING_WINDOWS,
    cut_training_windows,
    divide,
    prepare_source,
    sample_pictures,
    separate_selection,
    split_pictures,
)
from tests.data.voices import voice, write_people

SHORT = AudioPreprocessing(frames=50, step=25, bands=16, trim=None)


def source(labels, split=None):
    return ArraySource(np.zeros((len(labels), 4, 4), dtype=np.uint8), np.array(labels), split=split)


def test_identities_are_on_one_side_and_the_same_every_time():
    made = source(np.arange(20).repeat(3))
    train, measured, reason, *_ = divide(made, 0.25)
    assert len(train) == 45
    assert not set(made.labels[train].tolist()) & set(made.labels[measured].tolist())
    assert torch.equal(divide(made, 0.25).measured, measured)
    assert reason.startswith("5 of 20 identities are kept out of training")


def test_two_are_held_out_at_least_and_two_trained_on():
    assert (
        len(source(np.arange(4).repeat(2)).labels[divide(source(np.arange(4).repeat(2)), 0.01).measured].unique()) == 2
    )
    assert len(divide(source(np.arange(4).repeat(2)), 0.99).train) == 4
    with pytest.raises(DataError, match="holds 3 identities with at least 2 pictures; 4 are needed"):
        divide(source(np.arange(3).repeat(2)), 0.5)


def test_identities_with_few_pictures_are_left_out():
    made = source([0, 0, 1, 1, 2, 2, 3, 3, 4, 5, 6])
    train, measured, *_ = divide(made, 0.5)
    assert len(train) + len(measured) == 8


def test_own_splits_count_where_identities_differ():
    labels = np.arange(8).repeat(2)
    split = ["train"] * 8 + ["test"] * 8
    train, measured, reason, *_ = divide(source(labels, split), 0.2)
    assert (train.tolist(), measured.tolist()) == (list(range(8)), list(range(8, 16)))
    assert reason == "the source has splits: train is trained on, test is measured"
    split[8] = "train"
    _, measured, reason, *_ = divide(source(labels, split), 0.2)
    assert measured.tolist() == list(range(10, 16))
    assert reason.endswith("without 1 identities that are in train too")


def test_splits_of_the_same_identities_are_not_used():
    made = source(np.arange(8).repeat(2), ["train", "test"] * 8)
    train, measured, *_ = divide(made, 0.25)
    assert (len(train), len(measured)) == (12, 4)


def test_nothing_held_out():
    train, measured, reason, *_ = divide(source(np.arange(3).repeat(2)), 0.0)
    assert torch.equal(train, measured)
    assert "the report measures the training identities" in reason


def test_selection_is_disjoint_from_training_and_report():
    made = source(np.arange(40).repeat(4))
    whole = divide(made, 0.2)
    division = separate_selection(made, whole, 0.2)
    parts = [set(made.labels[index].tolist()) for index in (division.train, division.measured, division.selection)]
    assert [len(part) for part in parts] == [26, 8, 6]
    assert len(set.union(*parts)) == 40
    assert torch.equal(division.measured, whole.measured)
    assert division.selection_reason.startswith("6 identities are set aside")
    assert "neither trained on nor among the 8 identities of the report" in division.selection_reason


def test_few_identities_are_all_trained_on():
    made = source(np.arange(12).repeat(4))
    whole = divide(made, 0.2)
    division = separate_selection(made, whole, 0.2)
    assert torch.equal(division.train, whole.train)
    assert len(division.selection) == 0
    assert "too few to set some aside" in division.selection_reason


def test_splits_are_disjoint_and_the_same_from_memory_and_from_files():
    draw = np.random.default_rng(0).integers(0, 256, (40, 6, 6), dtype=np.uint8)
    source = ArraySource(draw, np.arange(8).repeat(5))
    division = divide(source, 0.25)
    prepare = PicturePreprocessing(size=(6, 6), channels=1)
    settings = [FitSettings(memory=memory, watched=5) for memory in (True, False)]
    memory, read = (split_pictures(source, division, prepare, one) for one in settings)
    index = torch.arange(len(division.train))
    assert torch.equal(memory.train.batch(index)[0], read.train.batch(index)[0])
    assert torch.equal(memory.train.batch(index)[0][:, 0], torch.from_numpy(draw)[division.train])
    assert memory.train.labels.max() == 5
    assert len(memory.watched.labels.unique()) == 2
    assert len(memory.measured) == 10


def test_pictures_for_choices_are_spread_evenly():
    data = (torch.arange(5000) // 20).to(torch.uint8)[:, None, None, None].expand(-1, 1, 2, 2)
    found = sample_pictures(InMemory(data, torch.arange(5000) % 7, [str(i) for i in range(7)]), 2048)
    assert len(found) == 2048
    assert found[0].max() == 0
    assert found[-1].max() == 249
    assert found[1024].max() == 125


@pytest.fixture
def people(tmp_path):
    return open_source(write_people(tmp_path / "people", people=2, takes=3))


def test_windows_are_those_of_the_preprocessing(people):
    prepared = prepare_source(people, SHORT, "raise")
    assert len(prepared.windows) == 6
    assert not prepared.unusable
    torch.testing.assert_close(prepared.windows[4], SHORT.load_windows(people.sample(4)))


def test_a_silent_recording_stops_or_is_left_out(tmp_path):
    soundfile = pytest.importorskip("soundfile")
    folder = write_people(tmp_path / "people", people=2, takes=3)
    soundfile.write(folder / "person1" / "1.wav", np.zeros(16000, dtype=np.float32), 16000)
    source = open_source(folder)
    with pytest.raises(DataError, match=r"1\.wav: .*silent.*on_error=skip"):
        prepare_source(source, SHORT, "raise")
    prepared = prepare_source(source, SHORT, "skip")
    assert [record.name for record in prepared.source.records] == [
        record.name for record in source.records if not record.name.endswith("person1/1.wav")
    ]
    (name,) = prepared.unusable
    assert name.endswith("1.wav")
    assert "silent" in prepared.unusable[name]
    assert len(prepared.windows) == len(prepared.source) == 5


def test_samples_without_a_face_are_always_left_out(people):
    class Faces(AudioPreprocessing):
        def load_all(self, sample, box=None, choose="all"):
            if sample.samples[100, 0] == people.sample(0).samples[100, 0]:
                raise UnusableSampleError("no face was found")
            return super().load_all(sample, box, choose)

    prepared = prepare_source(people, Faces(frames=50, step=25, bands=16), "raise")
    assert len(prepared.source) == 5
    assert list(prepared.unusable.values()) == ["no face was found"]


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
