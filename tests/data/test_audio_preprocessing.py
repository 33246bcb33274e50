"""Windows of recordings: their starts, padding, refused recordings, and agreement of files and sources."""

import json
import shutil

import numpy as np
import pytest
import soundfile
import torch

from hypersphere.data import AudioPreprocessing, CorruptDataError, Preprocessing, Recording, check, open_source
from tests.data.voices import voice, write_people

PLAIN = AudioPreprocessing(frames=50, step=25, trim=None)


def reference_starts(count, frames, step, hop, coverage):
    """Return the first frames of windows that cover the recording.

    The recording fills at least ``coverage`` of the last window.
    """
    total = -(-(count + 1) // hop)
    starts = [0]
    while starts[-1] + step <= total - frames + step:
        starts.append(starts[-1] + step)
    if len(starts) > 1 and count - starts[-1] * hop < coverage * frames * hop:
        starts.pop()
    return starts


@pytest.mark.parametrize("count", [5000, 7999, 8000, 8001, 12345, 30000])
@pytest.mark.parametrize("coverage", [0.5, 0.75, 1.0])
def test_windows_are_frames_of_the_whole_recording(count, coverage):
    prepare = AudioPreprocessing(frames=50, step=23, trim=None, padding="zero", coverage=coverage, center=False)
    sound = voice(0, seconds=2)[:count]
    windows = prepare.load_windows(sound)
    starts = reference_starts(count, 50, 23, 160, coverage)
    assert windows.shape == (len(starts), *prepare.shape)
    extended = torch.nn.functional.pad(torch.from_numpy(sound), (200, 20000))
    whole = prepare.normalize(extended)
    for window, start in zip(prepare.normalize(windows), starts, strict=True):
        torch.testing.assert_close(window, whole[:, start : start + 50], atol=1e-5, rtol=1e-4)


def test_short_recordings_are_repeated_or_filled_with_zeros():
    sound = voice(0, seconds=0.4)
    repeated, zeros = (
        AudioPreprocessing(frames=100, step=50, trim=None, padding=padding).load_windows(sound)[0]
        for padding in ("repeat", "zero")
    )
    torch.testing.assert_close(repeated[200 + 6400 : 200 + 12800], torch.from_numpy(sound))
    assert zeros[200 + 6400 :].abs().max() == 0


@pytest.mark.parametrize("kind", [np.int16, np.int32, np.uint8, np.float64])
def test_number_formats_agree(kind):
    sound = voice(3)
    if kind is np.float64:
        given = sound.astype(kind)
    elif kind is np.uint8:
        given = np.round(sound * 128 + 128).astype(kind)
    else:
        given = np.round(sound * (np.iinfo(kind).max + 1.0)).astype(kind)
    tolerance = 1 / 200 if kind is np.uint8 else 2e-5
    torch.testing.assert_close(PLAIN.load(given), PLAIN.load(sound), atol=tolerance, rtol=0)
    torch.testing.assert_close(PLAIN.load(torch.from_numpy(given)), PLAIN.load(given))


def test_quiet_recordings_are_raised_to_the_level_and_loud_ones_stay():
    prepare = AudioPreprocessing(level=-30.0, trim=None)
    quiet, loud = prepare.prepare(voice(1) * 1e-2), prepare.prepare(3 * voice(1))
    assert 20 * np.log10(np.sqrt((quiet**2).mean())) == pytest.approx(-30, abs=1e-3)
    assert np.array_equal(loud[: len(voice(1))], 3 * voice(1))


@pytest.mark.parametrize(
    ("sound", "message"),
    [
        (np.zeros(16000, dtype=np.float32), r"2\.wav: the recording is silent \(1\.00 s\)"),
        (voice(0)[:1600], r"2\.wav: the recording is too short: 0\.10 s of speech, at least 0\.3 s are needed"),
    ],
)
def test_silent_and_short_recordings_are_named(tmp_path, sound, message):
    folder = write_people(tmp_path / "people", people=2)
    soundfile.write(folder / "person1" / "2.wav", sound, 16000)
    with pytest.raises(CorruptDataError, match=message):
        open_source(folder).load(5, AudioPreprocessing())
    with pytest.raises(ValueError, match=message):
        AudioPreprocessing().load(folder / "person1" / "2.wav")


def test_folder_table_and_shards_give_the_same_windows(tmp_path):
    folder = write_people(tmp_path / "people", people=2, takes=2)
    rows = [(path, path.parent.name) for path in sorted(folder.glob("*/*.wav"))]
    table = tmp_path / "people.csv"
    table.write_text("path,label\n" + "".join(f"people/{p.parent.name}/{p.name},{label}\n" for p, label in rows))
    flat = tmp_path / "flat"
    flat.mkdir()
    for i, (path, label) in enumerate(rows):
        shutil.copy(path, flat / f"{i}.wav")
        (flat / f"{i}.json").write_text(json.dumps({"label": label}))
    shard = shutil.make_archive(str(tmp_path / "shard-000"), "tar", flat)
    opened = [open_source(one) for one in (folder, table, shard)]
    for source in opened:
        assert source.classes == ("person0", "person1")
        by_label = sorted((record.label, i) for i, record in enumerate(source.records))
        loaded = torch.stack([source.load(i, PLAIN) for _, i in by_label]).sort(0).values
        expected = torch.stack([opened[0].load(i, PLAIN) for i in range(4)]).sort(0).values
        torch.testing.assert_close(loaded, expected)


def test_a_table_names_parts_of_a_recording(tmp_path):
    soundfile.write(tmp_path / "talk.flac", np.concatenate([voice(0), voice(1)]), 16000)
    table = tmp_path / "parts.csv"
    table.write_text("path,label,start,end\ntalk.flac,ann,0,1.5\ntalk.flac,bob,1.5,3\n")
    source = open_source(table)
    assert [record.box for record in source.records] == [(0.0, 1.5), (1.5, 3.0)]
    for i in range(2):
        torch.testing.assert_close(source.load(i, PLAIN), PLAIN.load(voice(i)), atol=1e-4, rtol=0)
    for bad in ("3,2", "-1,2", "x,2", ",2"):
        table.write_text(f"path,label,start,end\ntalk.flac,ann,{bad}\n")
        with pytest.raises(CorruptDataError, match="row 2: start and end must be seconds with 0 ≤ start < end"):
            open_source(table, identities=1)
    table.write_text("path,label,start\ntalk.flac,ann,1\n")
    with pytest.raises(CorruptDataError, match="all of start end or none"):
        open_source(table, identities=1)
    table.write_text("path,label,start,end\ntalk.flac,ann,2,9\n")
    with pytest.raises(CorruptDataError, match=r"talk\.flac: start and end must lie in 0 … 3\.00 s"):
        open_source(table, identities=1).load(0, PLAIN)


def test_a_file_stores_it_and_nonsense_is_refused():
    prepare = AudioPreprocessing(frames=160, step=77, fft=512, scale="htk", trim=None, level=-30.0)
    assert Preprocessing.from_dict(prepare.to_dict()) == prepare
    for name, value in {
        **{"rate": 10, "frames": 1, "step": 0, "window": 8, "hop": 0, "bands": 0, "fft": 100, "low": 9000.0},
        **{"scale": "bark", "trim": "loud", "padding": "mirror", "coverage": 0.0, "min_seconds": 0.0, "level": 3.0},
    }.items():
        with pytest.raises(ValueError, match=name):
            Preprocessing.from_dict({"call": "AudioPreprocessing", name: value})
    with pytest.raises(ValueError, match="a window must have at most"):
        AudioPreprocessing(frames=60000, step=100, hop=400)
    with pytest.raises(ValueError, match="a recording must be a path, bytes, a Recording, an array or a tensor"):
        prepare.load({"not": "sound"})


def test_thumbnails_are_pictures():
    shown = PLAIN.thumbnails(torch.stack([PLAIN.load(voice(i)) for i in range(2)]))
    assert shown.dtype == torch.uint8
    assert shown.shape == (2, 1, 80, 50)
    assert shown.amax() == 255


def test_check_reports_durations_rates_clipping_silence_and_duplicates(tmp_path):
    folder = write_people(tmp_path / "people", people=3, takes=2)
    shutil.copy(folder / "person0" / "0.wav", folder / "person1" / "copy.wav")
    soundfile.write(folder / "person0" / "silent.wav", np.zeros(16000), 16000)
    soundfile.write(folder / "person1" / "loud.wav", np.clip(voice(1) * 20, -1, 1), 16000)
    soundfile.write(folder / "person2" / "short.wav", voice(2)[:4000], 16000)
    soundfile.write(folder / "person2" / "stereo.flac", np.stack([voice(2)] * 2, 1), 48000)
    (folder / "person2" / "text.ogg").write_text("text")
    report = check(folder)
    assert (report.noun, report.images, report.identities) == ("recording", 11, 3)
    assert {kind: len(names) for kind, names in report.suspicious.items()} == {
        "silent": 1,
        "clipped": 1,
        "shorter than 0.5 s": 1,
    }
    text = str(report)
    for line in (
        "11 recordings of 3 identities",
        "durations: 0.25 to 1.50 s",
        "rates: 16000 Hz (10 recordings), 48000 Hz (1 recordings)",
        "1 recording is silent: person0/silent.wav",
        "1 recording is clipped: person1/loud.wav",
        "1 recording cannot be read: person2/text.ogg",
        "1 group of equal recordings: person0/0.wav = ",
    ):
        assert line in text
    plain = report.to_json()
    assert plain["medium"] == "recording"
    assert plain["seconds"]["most"] == 1.5
    assert plain["suspicious"]["silent"] == [str(folder / "person0" / "silent.wav")]


def test_the_decoded_cache_keeps_samples(tmp_path):
    from hypersphere.data import cache_decoded

    dataset = open_source(write_people(tmp_path / "people", people=2)).dataset(PLAIN)
    stored = cache_decoded(dataset, tmp_path / "cache")
    torch.testing.assert_close(stored.in_memory().data, dataset.in_memory().data)


def test_a_recording_is_no_picture():
    from hypersphere.data import PicturePreprocessing

    with pytest.raises(ValueError, match="an image must be"):
        PicturePreprocessing().load(Recording(np.zeros((100, 1), dtype=np.float32), 16000))
